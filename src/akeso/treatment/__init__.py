"""treatment."""
