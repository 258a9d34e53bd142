"""Merge panels of one chromosome."""
