"""The Snakemake workflow: does a run that is killed again and again end as one that is left alone?"""
