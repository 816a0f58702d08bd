"""Tables of runs, as anybody wrote them, brought into forms that analyses start from."""
