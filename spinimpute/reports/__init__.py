"""Reports as self-contained pages."""
