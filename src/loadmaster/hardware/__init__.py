"""Where ops run: devices, links, clusters, and what ops cost there."""

from loadmaster.hardware._cluster import PRECISIONS, Cluster, Device, Link
from loadmaster.hardware._cluster_file import parse_cluster, read_cluster
from loadmaster.hardware._cost_file import read_costs
from loadmaster.hardware._costs import ORIGINS, Costs, estimate, parse_totals, scale_to
from loadmaster.hardware._op_kinds import KINDS, op_kind, op_kinds
from loadmaster.hardware._presets import accelerators, load_cluster, preset, preset_names
from loadmaster.hardware._roofline import roofline

__all__ = [
    "KINDS",
    "ORIGINS",
    "PRECISIONS",
    "Cluster",
    "Costs",
    "Device",
    "Link",
    "accelerators",
    "estimate",
    "load_cluster",
    "op_kind",
    "op_kinds",
    "parse_cluster",
    "parse_totals",
    "preset",
    "preset_names",
    "read_cluster",
    "read_costs",
    "roofline",
    "scale_to",
]
