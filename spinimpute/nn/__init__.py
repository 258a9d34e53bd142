"""Networks of SPIN and its baselines, their training objective and optimisers."""
