"""Training that is the user's own: a function or a command."""
