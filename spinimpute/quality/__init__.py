"""Accuracy of imputed genotypes: metrics, statistics by site and by sample, and the summary of a run."""
