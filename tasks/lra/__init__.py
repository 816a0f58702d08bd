"""The five tasks of the Long Range Arena (Tay et al., arXiv 2011.04006) as token sequences."""
