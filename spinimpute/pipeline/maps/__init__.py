"""Build panel files, and fit their genetic maps to their haplotypes."""
