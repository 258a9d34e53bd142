"""Meta-training of imputation networks: simulated segments, training tasks (episodes), the training loop."""
