"""The papers' claims beside what studies of this project found."""
