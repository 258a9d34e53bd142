"""Inducing panels: their accuracy, and what they reveal about the people from whom they were built."""
