"""HLA types of people, imputed as labels and as biallelic pseudo-markers."""
