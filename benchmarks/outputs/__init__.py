"""Checksums of the outputs of commands, to compare two versions of the program."""
