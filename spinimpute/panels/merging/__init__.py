"""Merge panels of one chromosome into one panel, and fill in the alleles that a panel lacks."""
