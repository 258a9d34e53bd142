"""Read targets (the samples to impute) from VCF, PLINK and array files; lift them over and repair them."""
