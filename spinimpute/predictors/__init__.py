"""Predictors of untyped alleles: what they are, how they are loaded and trained."""
