"""Imputation of sequenced samples, from genotype likelihoods and reads."""
