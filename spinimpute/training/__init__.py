"""Meta-training: simulated segments, episodes, the loop."""
