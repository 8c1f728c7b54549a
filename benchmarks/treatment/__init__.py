"""Sick trainings of the corpus under every plan at the same budget: ``python -m benchmarks.treatment``."""
