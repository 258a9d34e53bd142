"""Speed of imputation, training and tabular models on CPUs and on a GPU."""
