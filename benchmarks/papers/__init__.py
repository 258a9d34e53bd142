"""The tables of the papers, by the papers' protocols, on data that can be had."""
