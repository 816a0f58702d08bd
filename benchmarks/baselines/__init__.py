"""The other sides: programs as a good user writes them from the libraries' own documentation."""
