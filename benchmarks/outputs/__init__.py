"""Checksums of what the commands write, to compare two versions of the program."""
