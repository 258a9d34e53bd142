"""Models that impute, how they are trained, and the pipeline from a target file to an imputed one."""
