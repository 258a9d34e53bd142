"""Which of a panel's sites are predicted badly from the haplotypes around them: `panel build` finds out."""
