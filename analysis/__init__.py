"""Answers from tables of results: transitions, fronts, lean equivalents, reports.

Nothing here imports torch, ray or mlflow: any table can be analysed anywhere.
"""
