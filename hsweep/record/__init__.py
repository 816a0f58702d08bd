"""A study on disk: what was asked for, every report, and how all of it is kept whole."""
