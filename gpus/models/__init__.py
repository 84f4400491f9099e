"""Rows of GPU telemetry: sources, devices with their samples and history, studies of rollouts, nodes against peers."""

from gpus.models.checks import CheckImage, CheckRun, CheckRunQuerySet, CheckSchedule
from gpus.models.peers import NodePace, PaceLook
from gpus.models.queues import QueueStep, WorkloadWait
from gpus.models.showback import GpuPrice, GpuUse, JobUse, NodeUse, Team, TeamRules
from gpus.models.studies import Study, StudyEffect, StudyNode
from gpus.models.telemetry import (
    STALE_AFTER,
    GpuBand,
    GpuDevice,
    GpuDeviceQuerySet,
    GpuOpen,
    GpuPacked,
    HostLoad,
    IdleHolding,
    NodeTally,
    TelemetrySource,
    Waiting,
)

__all__ = [
    "STALE_AFTER",
    "CheckImage",
    "CheckRun",
    "CheckRunQuerySet",
    "CheckSchedule",
    "GpuBand",
    "GpuDevice",
    "GpuDeviceQuerySet",
    "GpuOpen",
    "GpuPacked",
    "GpuPrice",
    "GpuUse",
    "HostLoad",
    "IdleHolding",
    "JobUse",
    "NodePace",
    "NodeTally",
    "NodeUse",
    "PaceLook",
    "QueueStep",
    "Study",
    "StudyEffect",
    "StudyNode",
    "Team",
    "TeamRules",
    "TelemetrySource",
    "Waiting",
    "WorkloadWait",
]
