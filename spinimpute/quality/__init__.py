"""How good imputed genotypes are: metrics, statistics by site and sample, the summary of a run."""
