"""From what a user asks for to a study that runs, or runs again."""
