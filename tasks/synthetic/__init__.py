"""Tasks whose data are drawn: nothing to download, the truth is known."""
