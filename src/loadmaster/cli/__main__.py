"""``python -m loadmaster.cli``."""

from loadmaster.cli import main

main()
