"""How SPIN on genotypes learns to impute unseen regions, and the accuracy of SPIN as in the paper."""
