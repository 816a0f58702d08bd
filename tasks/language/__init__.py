"""Texts: the next token, hidden tokens, and what a pre-trained encoder is good for."""
