"""The backend of SPIN for GPUs: it imputes batches of blocks from a panel of haplotypes."""
