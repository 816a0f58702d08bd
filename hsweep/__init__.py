"""Sweeps over transformer shapes: planned, run, recorded and resumed."""
