"""Accuracy of imputed files (`evaluate`): reading true and imputed genotypes, scores, tables and report."""
