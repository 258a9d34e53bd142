"""Find errors of a panel from its own haplotypes: unreliable sites, and rare alleles with wrong phase."""
