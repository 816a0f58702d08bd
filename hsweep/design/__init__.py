"""What a sweep file says: axes, budgets, recipes, questions, and the trial they come to."""
