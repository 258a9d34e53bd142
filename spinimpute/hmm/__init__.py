"""The hidden Markov model of Li and Stephens: candidates, posteriors, leave-one-out and map tuning."""
