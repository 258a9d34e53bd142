"""Comparisons of accuracy and speed; not installed with the package."""
