"""How good is an imputed file? Metrics, readers of truth and imputed files, and the report of `evaluate`."""
