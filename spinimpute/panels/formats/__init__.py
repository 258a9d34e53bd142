"""Read panels in other formats than VCF: M3VCF, and the haplotypes of IMPUTE with their legend."""
