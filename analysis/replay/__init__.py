"""Studies on record, run again in another way with the values that are there."""
