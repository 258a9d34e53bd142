"""Accuracy of an imputed file: readers of truth and imputed files, scores, and the report of `evaluate`."""
