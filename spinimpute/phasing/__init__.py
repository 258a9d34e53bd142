"""Phasing of targets (`phase`), and genotypes of samples from genotype likelihoods (`genotypes`)."""
