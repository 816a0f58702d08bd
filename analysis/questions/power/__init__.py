"""How many lengths and seeds a sweep needs."""
