"""Whole genomes in one command."""
