"""Training by the user's code: a function, or a script whose output is read."""
