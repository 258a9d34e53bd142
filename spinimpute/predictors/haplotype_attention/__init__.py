"""Haplotype attention: candidates, IBS classes, the networks, their compiled form."""
