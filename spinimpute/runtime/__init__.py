"""Tools that all packages use, such as errors, output files, kernels, processes and memory budgets."""
