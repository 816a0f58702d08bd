"""What models are trained on: one module a task, all under the contract in ``tasks.base``."""
