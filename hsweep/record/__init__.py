"""A study on disk: its sweep, its trials, their reports and weights, and how files stay whole."""
