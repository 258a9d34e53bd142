"""The predictor SPIN: it compresses a panel into inducing points that carry the panel's alleles."""
