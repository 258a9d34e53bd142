"""Sites, alleles, haplotypes, regions, genetic maps and intervals: what all other packages build on."""
