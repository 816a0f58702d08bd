"""Architectures behind one shape: configurations, their counts and the modules they build."""
