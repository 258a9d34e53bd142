"""Low-coverage sequencing: genotype likelihoods at the panel's sites, from variant files or from reads."""
