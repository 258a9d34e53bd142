"""Number of functions that one run enters."""
