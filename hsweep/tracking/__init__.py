"""From a study's record to MLflow, beside the training."""
