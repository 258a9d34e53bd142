"""What a GPU is worth: imputing, training and tabular models on processors and on a GPU."""
