"""Conditions under which a node may be checked: healthy, not of a rollout, and idle where the check takes its GPUs.

The scheduler decides finally.
"""

from __future__ import annotations

import re

from django.db.models import Exists, OuterRef, Q, QuerySet, TextField
from django.db.models.functions import Cast

from clusters import objects
from clusters.models import Cluster, GpuPod, Node
from clusters.models.clusters import NodeQuerySet
from gpus.models import CheckRun
from gpus.services.checks import pods
from gpus.services.checks.catalog import CHECKS, RESOURCES, Check
from jobs.calendars import targets
from jobs.models import Step

_SHARED = "|".join(re.escape(name + objects.SHARED_SUFFIX) for name in objects.GPU_RESOURCES)
_MIG = re.escape(objects.MIG_PREFIX) + '[^"]+'
_PARTS = rf'"({_MIG}|amd\.com/(spx|dpx|tpx|qpx|cpx)_nps[0-9]{{1,2}}|{_SHARED})": "?0*[1-9]'
"""In the text of `Node.allocatable`: parts of GPUs, of which there is one or more (`Node.instances`)."""
_PARTS_BY_CLAIM = '"[^"]+": 0*[1-9]'
"""In the text of `Node.gpus_by_claim`: a profile that has a name, whole GPUs have none."""


def objection(run: CheckRun) -> str:
    """Return, in a sentence, why the run cannot begin now; empty when it can. A few queries."""
    cluster, node = run.cluster, run.node
    if why := not_ours(run) or cluster.why_unknown or right_of_way(node.pk):
        return why
    if freeze := targets.active_freeze(cluster, None):
        return f"{targets.FREEZE_IS_ACTIVE} {freeze.reason}"
    check = CHECKS[run.check_name]
    if why := unfit(node, check):
        return why
    if not check.takes_gpus:
        return ""
    if pods.resource_of(check, node.allocatable)[1] != run.gpus:
        return f"{node.name} does not offer the {run.gpus} GPUs that it had."
    if pod := _with_devices().filter(cluster=cluster, node_name=node.name).order_by("pk").first():
        return f"{node.name} is busy: {pod} holds GPUs."
    return ""


def unfit(node: Node, check: Check) -> str:
    if not node.is_ready:
        return f"{node.name} is not Ready: {node.ready_reason or 'the kubelet is silent'}."
    if node.is_cordoned:
        return f"{node.name} is cordoned."
    if node.driver_upgrade:
        return f"An operator upgrades the driver of {node.name} ({node.driver_upgrade})."
    if check.takes_gpus and (node.instances or node.gpu_shares or node.gpu_virtual):
        return f"The GPUs of {node.name} are split, shared or for virtual machines, and a check takes whole ones."
    return ""


def takers(check: Check) -> NodeQuerySet:
    """Select the present nodes with whole GPUs that a check can take: `starting.start` refuses all others.

    Of a check that takes none, those with GPUs: people may start it on others, such as control planes, where the
    scheduler may not place it.
    """
    if not check.takes_gpus:
        return Node.objects.present().filter(gpu_count__gt=0)
    names = "|".join(re.escape(RESOURCES[vendor]) for vendor in check.vendors)
    nodes = Node.objects.present().filter(gpu_count__gt=0, gpu_shares={}, gpu_virtual=0)
    nodes = nodes.alias(offered=Cast("allocatable", TextField()), claimed=Cast("gpus_by_claim", TextField()))
    whole = Q(("offered__regex", rf'"({names})": "?0*[1-9][0-9]*"?[,}}]'))
    return nodes.filter(whole, ~Q(("offered__regex", _PARTS)), ~Q(("claimed__regex", _PARTS_BY_CLAIM)))


def idle(nodes: NodeQuerySet, check: Check) -> NodeQuerySet:
    """Select those to which `objection` has nothing to say, and on which no check waits or runs."""
    if check.takes_gpus:
        nodes = nodes.filter(~Exists(_holders()))
    return nodes.filter(
        ~Exists(CheckRun.objects.live().filter(node=OuterRef("pk"))),
        ~Exists(Step.objects.filter(node=OuterRef("pk"), is_live=True)),
        is_ready=True,
        is_cordoned=False,
        driver_upgrade="",
    )


def _holders() -> QuerySet[GpuPod]:
    return _with_devices().filter(cluster=OuterRef("cluster"), node_name=OuterRef("name"))


def _with_devices() -> QuerySet[GpuPod]:
    """Select pods that hold GPUs, or reserve some for others."""
    return GpuPod.every.exclude(gpus=0, devices={})


def right_of_way(node_id: int) -> str:
    """Return the rollout that has the node, or waits for it: it goes first."""
    step = Step.objects.filter(node=node_id, is_live=True).select_related("rollout").first()
    return f"{step.rollout} has the node, and goes first." if step else ""


def not_ours(run: CheckRun) -> str:
    if run.node.gone_at is not None:
        return "The node was deleted or replaced."
    return of_others(run.cluster)


def of_others(cluster: Cluster) -> str:
    is_ours = cluster.ownership == Cluster.Ownership.OURS
    return "" if is_ours else "The cluster belongs to another installation of Setpoint."
