"""The page of a study: everything found, in one HTML file."""
