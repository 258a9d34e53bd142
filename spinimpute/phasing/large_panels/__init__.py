"""Genotypes of sequenced samples from a large panel, of which only the most likely haplotypes are copied."""
