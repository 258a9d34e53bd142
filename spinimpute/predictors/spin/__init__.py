"""Predictors with inducing points: soft haplotypes, and the K-mer form of SPIN."""
