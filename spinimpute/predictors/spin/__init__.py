"""SPIN on genotypes: a panel compressed into inducing points that carry its alleles."""
