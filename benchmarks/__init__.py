"""Benchmarks of akeso: each module is a command that prints the figures it stands for."""
