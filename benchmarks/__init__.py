"""What the tool is measured with: simulated sweeps whose answer is known."""
