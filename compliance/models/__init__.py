"""Assignments, what is expected of each setting and seen of it, how nodes and components stand, and their changes."""

from compliance.models.components import ComponentChange, ComponentStanding
from compliance.models.held_nodes import HeldNode
from compliance.models.settings import (
    Assignment,
    Cause,
    ComplianceState,
    NodeExpectation,
    NodeStanding,
    Outlier,
    OutlierNode,
    Reading,
    SettingChange,
    SettingState,
)

__all__ = [
    "Assignment",
    "Cause",
    "ComplianceState",
    "ComponentChange",
    "ComponentStanding",
    "HeldNode",
    "NodeExpectation",
    "NodeStanding",
    "Outlier",
    "OutlierNode",
    "Reading",
    "SettingChange",
    "SettingState",
]
