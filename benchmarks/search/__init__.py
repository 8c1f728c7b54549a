"""Hyperparameter search with and without stopping rules: the three tasks of the BTTackler paper."""
