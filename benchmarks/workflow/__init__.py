"""The Snakemake workflow: is the result of a run that was killed repeatedly equal to that of an undisturbed
run?
"""
