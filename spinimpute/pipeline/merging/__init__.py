"""Joining of imputed files of different samples."""
