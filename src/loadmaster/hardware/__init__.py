"""Where ops run: devices, links, clusters, and what ops cost there."""

from loadmaster.hardware._cluster import Cluster, Device, Link
from loadmaster.hardware._presets import accelerators, preset
from loadmaster.hardware._roofline import roofline

__all__ = ["Cluster", "Device", "Link", "accelerators", "preset", "roofline"]
