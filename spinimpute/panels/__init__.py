"""Build, read, write and merge reference panels: files of haplotypes (.spin) or inducing points (.spip)."""
