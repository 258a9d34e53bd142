"""Predictors of untyped alleles: their interface, the registry, loading from checkpoints, and training."""
