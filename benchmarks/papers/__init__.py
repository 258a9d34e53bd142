"""The tables of the papers, by the papers' protocols, on available data."""
