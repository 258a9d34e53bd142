"""VCF and BCF: reading, writing, BGZF and indexes."""
