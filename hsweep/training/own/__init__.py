"""Training that belongs to the user: where its metrics come from, and the processes it runs in."""
