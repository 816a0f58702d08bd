"""Training that belongs to the user: a function, or a script and what it writes."""
