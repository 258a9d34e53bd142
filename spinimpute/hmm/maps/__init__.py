"""Genetic maps that are estimated from a panel, or tuned to it and to an array."""
