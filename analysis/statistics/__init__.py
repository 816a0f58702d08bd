"""The estimators and tests behind the answers; they work on numbers, not on tables."""
