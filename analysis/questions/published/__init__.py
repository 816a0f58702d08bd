"""A study beside the printed results that it repeats."""
