"""Which of a panel's sites can be predicted from the haplotypes around them."""
