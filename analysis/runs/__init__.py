"""Tables of runs from any tool, read, checked and grouped for the analyses."""
