"""Replicates trained as one program; ``door`` opens them, ``candidates`` says which may join."""
