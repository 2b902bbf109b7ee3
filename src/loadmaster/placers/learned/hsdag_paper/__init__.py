"""HSDAG as published."""
