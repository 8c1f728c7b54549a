"""Kill, resume, replay and compare: seventeen programs, to the bit. ``python -m benchmarks.replay --help``."""
