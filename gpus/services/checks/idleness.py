"""Conditions under which a node may be checked: idle, healthy, in no one's hands. The scheduler decides finally."""

from __future__ import annotations

from clusters.models import Cluster, GpuPod, Node
from gpus.models import CheckRun
from gpus.services.checks import pods
from gpus.services.checks.catalog import CHECKS
from jobs.calendars import targets
from jobs.models import Step


def objection(run: CheckRun) -> str:
    """Return, in a sentence, why the run cannot begin now; empty when it can. A few queries."""
    cluster, node = run.cluster, run.node
    if why := not_ours(run) or cluster.why_unknown or right_of_way(node.pk):
        return why
    if freeze := targets.active_freeze(cluster, None):
        return f"{targets.FREEZE_IS_ACTIVE} {freeze.reason}"
    if why := unfit(node):
        return why
    check = CHECKS[run.check_name]
    if pods.resource_of(check, node.allocatable)[1] != run.gpus:
        return f"{node.name} does not offer the {run.gpus} GPUs that it had."
    if pod := GpuPod.objects.filter(cluster=cluster, node_name=node.name).order_by("pk").first():
        return f"{node.name} is busy: {pod} holds GPUs."
    return ""


def unfit(node: Node) -> str:
    if not node.is_ready:
        return f"{node.name} is not Ready: {node.ready_reason or 'the kubelet is silent'}."
    if node.is_cordoned:
        return f"{node.name} is cordoned."
    if node.driver_upgrade:
        return f"An operator upgrades the driver of {node.name} ({node.driver_upgrade})."
    if node.instances or node.gpu_shares:
        return f"The GPUs of {node.name} are split or shared, and a check takes whole ones."
    return ""


def right_of_way(node_id: int) -> str:
    """Return the rollout that has the node, or waits for it: it goes first."""
    step = Step.objects.filter(node=node_id, is_live=True).select_related("rollout").first()
    return f"{step.rollout} has the node, and goes first." if step else ""


def not_ours(run: CheckRun) -> str:
    if run.node.gone_at is not None:
        return "The node was deleted or replaced."
    if run.cluster.ownership != Cluster.Ownership.OURS:
        return "The cluster belongs to another installation of Setpoint."
    return ""
