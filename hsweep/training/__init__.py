"""One trial in one process: the training loop, its checkpoints and its memory."""
