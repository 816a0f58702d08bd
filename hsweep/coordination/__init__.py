"""Decides which trial is next, which are stopped early and which are retried; trains nothing."""
