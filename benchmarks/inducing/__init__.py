"""Inducing panels: what they cost in accuracy, and what they tell about the people they were made of."""
