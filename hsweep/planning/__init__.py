"""Plans all trials before any of them trains, and compares plans with what a study has recorded."""
