"""What the papers printed, as data files, and a study beside it."""
