"""Which of several candidates answers a query."""
