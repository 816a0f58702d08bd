"""What the papers printed, as data files, and their reader."""
