"""Panel files whose genetic maps are fitted to them."""
