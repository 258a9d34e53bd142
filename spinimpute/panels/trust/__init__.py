"""Evidence against sites and phase, from the haplotypes of a panel."""
