"""Output files: VCF, BCF, PLINK 2, BGEN."""
