"""Which cheaper shapes are no worse than a baseline?"""
