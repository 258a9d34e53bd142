"""Chains of sequenced samples that copy the likeliest haplotypes of a large panel."""
