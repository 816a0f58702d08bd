"""Every trial before any trains, and what a change of the sweep comes to."""
