"""Healthy."""
