"""The model of Li and Stephens: posteriors, leave-one-out, recombination scale, map tuning."""
