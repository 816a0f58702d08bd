"""The kinds of question that a table of runs can be asked, one folder a kind."""
