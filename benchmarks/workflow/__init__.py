"""The Snakemake workflow: does a run that is killed repeatedly give the results of an undisturbed run?"""
