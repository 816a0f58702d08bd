"""Designs that ask for few runs at first, and for more where the answer needs them."""
