"""HSDAG, improved: groups of ops and their devices from one policy."""
