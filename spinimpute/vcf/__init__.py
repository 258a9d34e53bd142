"""Read and write VCF and BCF files, their BGZF compression and their indexes."""
