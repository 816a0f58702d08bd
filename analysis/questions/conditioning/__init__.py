"""Whether better conditioned attention goes with better results."""
