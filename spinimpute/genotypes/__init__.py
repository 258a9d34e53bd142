"""Genotype files in and out, genetic maps, panel files, windows and K-mers."""
