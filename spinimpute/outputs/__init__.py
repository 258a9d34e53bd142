"""Files that imputing writes: VCF, BCF, PLINK 2, BGEN."""
