"""Clusters that others run: SLURM's jobs and the nodes of Ray that start in them."""
