"""Search for panel sites that are predicted badly from the haplotypes around them, used by `panel build`."""
