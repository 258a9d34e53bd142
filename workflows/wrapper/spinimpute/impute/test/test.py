"""To be added to the wrapper repository's `test_wrappers.py`, which has the fixture."""


def test_spinimpute_impute(run):
    run("bio/spinimpute/impute", ["snakemake", "--cores", "2", "--use-conda", "-F", "imputed/target.vcf.gz"])
