"""What single axes do with the others held."""
