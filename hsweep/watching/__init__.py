"""A study's page while it runs, served to a browser."""
