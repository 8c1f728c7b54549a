"""Running somebody's unmodified script under a prescription, from outside, in a process of its own."""
