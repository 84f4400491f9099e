"""Pending gangs: Volcano's PodGroups and Kueue's Workloads with their queues, read through the API server.

Unschedulable pods show that something is missing; these objects name the owner, the time and the amount requested at
once. Quantities are Kubernetes' own: `8`, `8k`, and `8000m`, which is eight as well (Volcano keeps milli-units).
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from django.conf import settings
from django.db import transaction
from django.db.models import Q
from django.utils.dateparse import parse_datetime

from clusters import objects
from clusters.connection import registry
from clusters.fleet import Fleet, FleetError, Forbidden, NotFound
from clusters.models import Cluster
from common.clock import now
from contract import quantities
from gpus.capacity import observed, queue_steps, queue_terms, waits
from gpus.capacity.queue_steps import QueueLook
from gpus.capacity.queue_terms import ROOT, Terms
from gpus.models import Waiting
from gpus.storage.accumulator import COVERS_SECONDS

log = logging.getLogger(__name__)

VOLCANO, KUEUE = "volcano", "kueue"
VOLCANO_API = "scheduling.volcano.sh/v1beta1"
KUEUE_APIS = ("kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/v1beta1")
"""The newest that the cluster serves; what is read here is the same in both."""
CLAIM = timedelta(seconds=120)
WHERE_NOTHING_IS = timedelta(minutes=5)
"""Until it is looked again whether a scheduler was installed."""
MOST_GANGS = 200
MOST_QUEUES = 200
MOST_LOCAL_QUEUES = 5000
LONGEST = 300
AT_ONCE = 50
SEVERAL = "several kinds"
MEND = "apply deploy/setpoint-gpus.yaml"
Raw = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Gang:
    """Pods that start together or not at all, and wait."""

    system: str
    kind: str
    namespace: str
    name: str
    queue: str
    pods: list[list[int]]
    """[how many pods, GPUs of each]; only pods that want GPUs."""
    since: str
    """ISO 8601: when it was made."""
    reason: str
    """The scheduler's own words; empty where it has none."""
    profile: str = ""
    """The MIG profile of what is called a GPU here; empty: whole ones; SEVERAL: more than one kind."""


@dataclass(frozen=True, slots=True)
class Queue:
    system: str
    name: str
    waiting: int
    """Gangs, by the scheduler's own count."""
    held: int | None
    """GPUs in use by its work; None where it does not say."""
    limit: int | None
    """GPUs that it may hold: capability, or the sum of nominal quotas. None: without a limit."""
    state: str
    terms: dict[str, Any] = field(default_factory=dict)
    """What decides over who starts: gpus.capacity.queue_terms."""


@dataclass(slots=True)
class PendingWork:
    systems: list[str]
    refused: list[list[str]]
    gangs: list[Gang]
    queues: list[Queue]
    readings: waits.Readings = field(default_factory=waits.Readings)
    """All gangs, whether they wait or not."""


# ── Looks that are due ────────────────────────────────────────────────────────────────────────────────────────────────
def reconcile() -> None:
    """Each cluster whose nodes offer GPUs has a row; one query where they all do."""
    missing = Cluster.objects.filter(waiting=None, nodes__gone_at=None, nodes__gpu_count__gt=0).distinct()
    if new := [Waiting(cluster_id=pk) for pk in missing.values_list("pk", flat=True)]:
        Waiting.objects.bulk_create(new, ignore_conflicts=True)  # another worker may be faster


def due() -> list[int]:
    rows = Waiting.objects.filter(_free(now())).order_by("due_at", "pk")
    return list(rows.values_list("pk", flat=True)[:AT_ONCE])


def _free(at: datetime) -> Q:
    return Q(claimed_until=None, due_at__lte=at) | Q(claimed_until__lt=at)


def refresh(pk: int, *, reach: float = COVERS_SECONDS) -> bool:
    """Read the pending gangs if that is due and unclaimed. Waits on the network: hold no transaction.

    `reach`: seconds that a reading speaks for at most.
    """
    at = now()
    until, next_ = at + CLAIM, at + timedelta(seconds=settings.SETPOINT_GPU_SECONDS)
    if not Waiting.objects.filter(_free(at), pk=pk).update(claimed_until=until, due_at=next_):
        return False
    row = Waiting.objects.select_related("cluster").filter(pk=pk).first()
    if row is None:
        return False
    fields: dict[str, Any] = {"claimed_until": None}
    work = None
    try:
        work = read(registry.connect(row.cluster))
    except FleetError as error:
        # What was read before stays, with its age.
        fields |= {"refused": [["the API server", _short(str(error))]]}
    else:
        gangs = sorted(work.gangs, key=lambda gang: (gang.since, gang.namespace, gang.name))
        fields |= {
            "read_at": at,
            "systems": work.systems,
            "refused": work.refused,
            "gangs": [asdict(gang) for gang in gangs[:MOST_GANGS]],
            "count": len(gangs),
            "queues": [asdict(queue) for queue in sorted(work.queues, key=lambda q: (q.system, q.name))[:MOST_QUEUES]],
            "local_queues": [[*key, name] for key, name in sorted(work.readings.cluster_queues.items())],
        }
        if not work.systems and not work.refused:
            fields["due_at"] = at + WHERE_NOTHING_IS
    with transaction.atomic():
        # The claim is held by the row's lock while history is written: of two readings, one writes.
        if not Waiting.objects.filter(pk=pk, claimed_until=until).update(**fields):
            return False
        if work is not None:
            _remember(row, work, at, reach)
    return True


def _remember(row: Waiting, work: PendingWork, at: datetime, reach: float) -> None:
    """Write waits and queues of a reading. `row` has the time of the one before."""
    waits.record(row.cluster_id, work.readings, at, row.read_at, reach=timedelta(seconds=reach))
    terms = [(queue, Terms.of(queue.terms)) for queue in work.queues]
    parents = {term.parent for _, term in terms} | {ROOT}
    looks = [
        QueueLook(queue.system, queue.name, queue.held, term.quota)
        for queue, term in terms
        if queue.system != VOLCANO or queue.name not in parents
    ]
    queues = work.readings.cluster_queues
    queue_steps.record(row.cluster_id, looks[:MOST_QUEUES], at, row.read_at, queues, reach=reach)


# ── Reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────
def read(fleet: Fleet) -> PendingWork:
    """Read the schedulers' objects; record kinds that are forbidden and continue.

    Raises FleetError where the API server does not answer.
    """
    work = PendingWork([], [], [], [])
    groups = _listed(fleet, work, VOLCANO, VOLCANO_API, "podgroups")
    queues = _listed(fleet, work, VOLCANO, VOLCANO_API, "queues")
    at = now()  # behind the lists, so that no time in them is later
    waiting = [gang for raw in groups if (gang := _each(_pod_group, raw)) is not None]
    work.gangs += waiting
    work.readings.observations += _observations(groups, lambda raw: _seen_group(raw, at))
    by_queue = Counter(gang.queue for gang in waiting)
    work.queues += [queue for raw in queues if (queue := _each(lambda r: _volcano_queue(r, by_queue), raw)) is not None]
    for api in KUEUE_APIS:
        workloads = _listed(fleet, work, KUEUE, api, "workloads")
        clusters = _listed(fleet, work, KUEUE, api, "clusterqueues")
        local = _listed(fleet, work, KUEUE, api, "localqueues")
        if KUEUE in work.systems or any(KUEUE in what for what, _ in work.refused):
            break
    at = now()
    work.gangs += [gang for raw in workloads if (gang := _each(_workload, raw)) is not None]
    work.queues += [queue for raw in clusters if (queue := _each(_cluster_queue, raw)) is not None]
    work.readings.observations += _observations(workloads, lambda raw: _seen_workload(raw, at))
    work.readings.cluster_queues = _cluster_queues(workloads, local)
    refused = {what for what, _ in work.refused}
    complete = {VOLCANO: f"{VOLCANO}’s podgroups", KUEUE: f"{KUEUE}’s workloads"}
    work.readings.complete = {system for system, what in complete.items() if what not in refused}
    return work


def _observations(
    items: Iterable[Raw], observe: Callable[[Raw], observed.Observation | None]
) -> list[observed.Observation]:
    return [seen for raw in items if (seen := _each(observe, raw)) is not None]


def _seen_group(raw: Raw, at: datetime) -> observed.Observation | None:
    least = (raw.get("spec") or {}).get("minResources")
    pods = _spread(raw)
    return observed.pod_group(raw, at, pods=pods, profile=_profile([least])) if pods else None


def _seen_workload(raw: Raw, at: datetime) -> observed.Observation | None:
    pods, wanted = _pod_sets(raw)
    return observed.workload(raw, at, pods=pods, profile=_profile(wanted)) if pods else None


def _cluster_queues(workloads: Iterable[Raw], local: Iterable[Raw]) -> dict[tuple[str, str], str]:
    """Return the ClusterQueue of each LocalQueue: as it says, else as workloads were admitted."""
    queues: dict[tuple[str, str], str] = {}
    for raw in workloads:
        spec, admission = raw.get("spec") or {}, (raw.get("status") or {}).get("admission") or {}
        if name := str(admission.get("clusterQueue") or ""):
            queues[_namespace(raw), str(spec.get("queueName") or "")[:253]] = name[:253]
    for raw in local:
        if name := str((raw.get("spec") or {}).get("clusterQueue") or ""):
            queues[_namespace(raw), str(objects.meta(raw).get("name") or "")[:253]] = name[:253]
    return dict(list(queues.items())[:MOST_LOCAL_QUEUES])


def _namespace(raw: Raw) -> str:
    return str(objects.meta(raw).get("namespace") or "")[:63]


def _listed(fleet: Fleet, work: PendingWork, system: str, api: str, plural: str) -> list[dict[str, Any]]:
    try:
        items = fleet.custom(api, plural)
    except NotFound:
        return []
    except Forbidden as error:
        work.refused.append([f"{system}’s {plural}", _short(f"Setpoint {error}: {MEND}.")])
        return []
    if system not in work.systems:
        work.systems.append(system)
    return items


def _each(make: Callable[[Raw], Any], raw: Raw) -> Any:
    """Return `make(raw)`; None, logged, for a hand-written object that does not follow its schema."""
    try:
        return make(raw)
    except (AttributeError, TypeError, ValueError, KeyError):
        log.warning("an object of a scheduler could not be read: %s", objects.meta(raw).get("name"))
        return None


def _pod_group(raw: Raw) -> Gang | None:
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    if status.get("phase") not in ("Pending", "Inqueue", None, ""):
        return None
    if not (pods := _spread(raw)):
        return None
    unschedulable = [
        condition for condition in status.get("conditions") or () if condition.get("type") == "Unschedulable"
    ]
    reason = unschedulable[-1].get("message") or "" if unschedulable else ""
    gang = _gang(raw, (VOLCANO, "PodGroup"), str(spec.get("queue") or "default"), pods, reason)
    return replace(gang, profile=_profile([spec.get("minResources")]))


def _spread(raw: Raw) -> list[list[int]]:
    """Return the pods of a PodGroup, which says what all need together: spread evenly, those with one more first."""
    spec = raw.get("spec") or {}
    gpus, least = gpus_of(spec.get("minResources")), max(1, int(spec.get("minMember") or 1))
    each, more = divmod(gpus, least)
    return [[count, size] for count, size in ((more, each + 1), (least - more, each)) if count and size]


def _workload(raw: Raw) -> Gang | None:
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    conditions = {condition.get("type"): condition for condition in status.get("conditions") or ()}
    if any((conditions.get(name) or {}).get("status") == "True" for name in ("QuotaReserved", "Admitted", "Finished")):
        return None
    pods, wanted = _pod_sets(raw)
    if not pods:
        return None
    reason = str((conditions.get("QuotaReserved") or {}).get("message") or "")
    if spec.get("active") is False:
        reason = reason or "It is switched off (spec.active)."
    gang = _gang(raw, (KUEUE, "Workload"), str(spec.get("queueName") or ""), pods, reason)
    return replace(gang, profile=_profile(wanted))


def _pod_sets(raw: Raw) -> tuple[list[list[int]], list[Raw]]:
    """Return the pods that want GPUs, by set, and what all containers ask for."""
    pods, wanted = [], []
    for part in (raw.get("spec") or {}).get("podSets") or ():
        containers = ((part.get("template") or {}).get("spec") or {}).get("containers") or ()
        requests = [_requested(container.get("resources") or {}) for container in containers]
        wanted += requests
        each = sum(gpus_of(request) for request in requests)
        if each and (count := int(part.get("count") or 1)):
            pods.append([count, each])
    return pods, wanted


def _requested(resources: Raw) -> Raw:
    """Return a container's requests; a limit without a request is one, which a job's template does not show."""
    return {**(resources.get("limits") or {}), **(resources.get("requests") or {})}


def _profile(wanted: Iterable[Raw | None]) -> str:
    """Return the MIG profile of these requests as `Gang` stores it."""
    names = {name.removeprefix("requests.") for request in wanted for name in gpu_names(request)}
    kinds = {objects.profile(name) for name in names}
    return next(iter(kinds), "")[:63] if len(kinds) < 2 else SEVERAL


def _gang(raw: Raw, of: tuple[str, str], queue: str, pods: list[list[int]], reason: object) -> Gang:
    meta = objects.meta(raw)
    since = parse_datetime(str(meta.get("creationTimestamp"))) or now()
    where = str(meta.get("namespace") or "")[:253], str(meta.get("name") or "")[:253]
    return Gang(*of, *where, queue[:253], pods[:20], since.isoformat(), _short(str(reason)))


def _volcano_queue(raw: Raw, waiting: Mapping[str, int]) -> Queue:
    spec, status, name = raw.get("spec") or {}, raw.get("status") or {}, str(objects.meta(raw).get("name"))[:253]
    count = int(status.get("pending") or 0) + int(status.get("inqueue") or 0)
    limit = gpus_of(spec.get("capability")) if gpu_names(spec.get("capability")) else None
    held = gpus_of(status["allocated"]) if status.get("allocated") else None
    state, terms = str(status.get("state") or "")[:40], queue_terms.of_volcano_queue(raw).stored()
    return Queue(VOLCANO, name, max(count, waiting.get(name, 0)), held, limit, state, terms)


def _cluster_queue(raw: Raw) -> Queue:
    spec, status = raw.get("spec") or {}, raw.get("status") or {}
    quotas = [
        quantities.count(resource.get("nominalQuota", "0"))
        for group in spec.get("resourceGroups") or ()
        for flavor in group.get("flavors") or ()
        for resource in flavor.get("resources") or ()
        if objects.is_gpu(str(resource.get("name")))
    ]
    usage = status.get("flavorsReservation")
    held = [
        quantities.count(resource.get("total", "0"))
        for flavor in usage or ()
        for resource in flavor.get("resources") or ()
        if objects.is_gpu(str(resource.get("name")))
    ]
    active = [condition for condition in status.get("conditions") or () if condition.get("type") == "Active"]
    state = "" if not active else "Active" if active[-1].get("status") == "True" else str(active[-1].get("reason"))
    name, waiting = str(objects.meta(raw).get("name"))[:253], int(status.get("pendingWorkloads") or 0)
    used, terms = sum(held) if usage is not None else None, queue_terms.of_cluster_queue(raw).stored()
    return Queue(KUEUE, name, waiting, used, sum(quotas) if quotas else None, state[:40], terms)


def gpu_names(resources: Raw | None) -> list[str]:
    """Keys of GPUs, once each: quotas call the same thing `requests.nvidia.com/gpu` besides."""
    names = [name for name in resources or {} if objects.is_gpu(name)]
    return names or [name for name in resources or {} if objects.is_gpu(name.removeprefix("requests."))]


def gpus_of(resources: Raw | None) -> int:
    return sum(quantities.count((resources or {})[name]) for name in gpu_names(resources))


def _short(text: str) -> str:
    return "".join(letter if letter.isprintable() else " " for letter in text[:LONGEST]).replace("\0", " ").strip()


def total(pods: Iterable[Iterable[int]]) -> int:
    """GPUs of a gang."""
    return sum(count * each for count, each in pods)
