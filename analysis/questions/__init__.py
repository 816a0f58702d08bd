"""Kinds of questions, one folder each."""
