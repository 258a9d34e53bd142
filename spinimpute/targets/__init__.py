"""What users have, made into typed haplotypes: VCF, PLINK, array text, repair, liftover."""
