"""The kinds of questions, one folder each."""
