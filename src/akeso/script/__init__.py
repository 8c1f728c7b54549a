"""Running somebody's unmodified script: watched, or treated."""
