"""Low-coverage sequencing: genotype likelihoods at a panel's sites, from variant files or from reads."""
