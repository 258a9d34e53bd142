"""The compiled backend of SPIN for CPUs: it imputes from inducing points as `network` does, without torch."""
