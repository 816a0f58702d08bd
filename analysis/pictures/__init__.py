"""What was found, drawn: rows first, then plotly for pages and matplotlib for papers."""
