"""Phasing of targets against the panel and against each other."""
