"""HTML reports of `impute` and `evaluate`, and their charts and tables."""
