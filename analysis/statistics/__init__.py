"""The estimators and tests behind the answers; each knows numbers, no tables."""
