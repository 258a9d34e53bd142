"""The compiled backend of SPIN for CPUs: it does what `network` does, without torch."""
