"""What analyses found, as frozen values, and these values as files."""
