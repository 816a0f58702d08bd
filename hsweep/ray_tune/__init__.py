"""Ray Tune as a stateless executor."""
