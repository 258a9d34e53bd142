"""Genetic maps fitted to a panel."""
