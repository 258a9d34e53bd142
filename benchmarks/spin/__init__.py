"""How SPIN on genotypes learns to impute regions that it never saw, and what the paper's own form reaches."""
