"""Downloads published panels. This is the only package that opens network connections."""
