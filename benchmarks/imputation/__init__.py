"""spinimpute compared with allele frequencies, Beagle and Minimac4: `python -m benchmarks.imputation -h`."""
