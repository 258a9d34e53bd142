"""Panel files: haplotypes or inducing points of a reference panel; building, reading, rows, parts."""
