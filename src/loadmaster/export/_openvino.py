"""Plans for OpenVINO's HETERO."""

from __future__ import annotations

import json

from loadmaster.plan import Plan

__all__ = ["openvino_affinity"]


def openvino_affinity(plan: Plan) -> str:
    """``{friendly_name: device}``, to be set as the affinity of each op of an OpenVINO model under HETERO."""
    return json.dumps(plan.document["placement"], indent=1, ensure_ascii=False) + "\n"
