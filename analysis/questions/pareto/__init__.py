"""Which shapes lie on the front of metric and cost?"""
