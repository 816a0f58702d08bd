"""Where data come from, and what is made of them once and kept."""
