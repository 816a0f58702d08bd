"""``python -m hsweep``."""

from hsweep.cli import main

main()
