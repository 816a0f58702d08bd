"""The parts of a sweep file: axes, budgets, recipes, questions, and the trials made of them."""
