"""The predictor "haplotype": queries attend to classes of panel haplotypes that match them equally far."""
