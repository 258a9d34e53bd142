"""How long the path of one run through the code is."""
