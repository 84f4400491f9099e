"""One object of a scheduler as it is now: its identity, what it asks for, and how far it has come. Pure.

Kueue's conditions and their meaning are those of v0.19 (`v1beta2`, and the same in `v1beta1`), Volcano's phases those
of v1.15. Times of others are not believed beyond what is possible: none before the object was made, none later than the
reading. Marks are the times as they are written, and are compared with each other alone, for a cluster's clock may be
ahead of this one. Volcano writes the time of its conditions again every minute, so that they date a change only up to a
reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from django.utils.dateparse import parse_datetime

from clusters import objects
from clusters.inventory.job_owner import JobIdentity
from contract import quantities

Raw = Mapping[str, Any]
MOST_GPUS = 1_000_000
"""Of one gang. More is a mistake in writing, and no figure is made of it."""
MOST_SETS, MOST_LABELS, MOST_REASONS = 20, 20, 20
EARLIEST = datetime(2015, 1, 1, tzinfo=UTC)
"""Kubernetes is not older."""
WAITING_PHASES = ("", "Pending", "Inqueue")


@dataclass(frozen=True, slots=True)
class Observation:
    system: str
    kind: str
    uid: str
    namespace: str
    name: str
    queue: str
    """Empty: not told."""
    local_queue: str
    owner_kind: str
    owner_name: str
    job_key: str
    gpus: int
    pods: list[list[int]]
    profile: str
    selector: dict[str, str]
    priority: int | None
    is_active: bool
    created_at: datetime
    admitted_at: datetime | None
    """None: it waits. Of Volcano: at the latest."""
    running_at: datetime | None
    evicted_at: datetime | None
    """Of the eviction that it waits after; None where it was admitted since, or never evicted."""
    ended_at: datetime | None
    reason: str
    tallied: dict[str, int] = field(default_factory=dict)
    is_dated: bool = True
    """The cluster tells when it was admitted; else only that it was."""
    has_quota: bool = False
    """Of Kueue: its quota is reserved, also while an admission check is pending."""
    admission_mark: datetime | None = None
    eviction_mark: datetime | None = None


def workload(raw: Raw, at: datetime, *, pods: list[list[int]], profile: str) -> Observation:
    """Return a Workload of Kueue. `pods` and `profile` are what it asks for. Raises ValueError, TypeError."""
    spec, status = _mapping(raw.get("spec")), _mapping(raw.get("status"))
    conditions = _conditions(status)
    created = _created(raw, at)

    def when(name: str) -> datetime | None:
        return _at(conditions[name], created, at) if _is_true(conditions.get(name)) else None

    evicted = when("Evicted")
    admission = _mapping(status.get("admission"))
    reason = str(conditions["Evicted"].get("reason") or "") if evicted else ""
    return Observation(
        **_identity("kueue", "Workload", raw),
        queue=_text(admission.get("clusterQueue"), 253),
        local_queue=_text(spec.get("queueName"), 253),
        **_amount(pods),
        profile=profile,
        selector=_selector(spec.get("podSets")),
        priority=_priority(spec.get("priority")),
        is_active=spec.get("active") is not False,
        created_at=created,
        # While pods are being stopped the old admission is still True beside the eviction.
        admitted_at=None if evicted else when("Admitted"),
        running_at=None if evicted else when("PodsReady"),
        evicted_at=evicted,
        ended_at=when("Finished"),
        reason=_text(reason, 80),
        tallied=_tallied(status),
        has_quota=_is_true(conditions.get("QuotaReserved")) and not evicted,
        admission_mark=_mark(conditions.get("Admitted")),
        eviction_mark=_mark(conditions.get("Evicted")),
    )


def pod_group(raw: Raw, at: datetime, *, pods: list[list[int]], profile: str) -> Observation:
    """Return a PodGroup of Volcano, as `workload`."""
    spec, status = _mapping(raw.get("spec")), _mapping(raw.get("status"))
    conditions, created = _conditions(status), _created(raw, at)
    phase = str(status.get("phase") or "")
    is_in = phase not in WAITING_PHASES
    unschedulable = conditions.get("Unschedulable", {})
    scheduled = conditions.get("Scheduled")
    return Observation(
        **_identity("volcano", "PodGroup", raw),
        queue=_text(spec.get("queue"), 253) or "default",
        local_queue="",
        **_amount(pods),
        profile=profile,
        selector={},
        priority=None,
        is_active=True,
        created_at=created,
        admitted_at=(_at(scheduled, created, at) if _is_true(scheduled) and scheduled else at) if is_in else None,
        running_at=None,
        evicted_at=None,
        ended_at=at if phase == "Completed" else None,
        reason=_text(unschedulable.get("reason") or "", 80),
        is_dated=False,
    )


# ── Parts ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def _identity(system: str, kind: str, raw: Raw) -> dict[str, Any]:
    meta = objects.meta(raw)
    uid, namespace, name = _text(meta.get("uid"), 64), _text(meta.get("namespace"), 63), _text(meta.get("name"), 253)
    if not (uid and name):
        raise ValueError("it has no uid or no name")
    owner: Raw = next((owner for owner in meta.get("ownerReferences") or () if owner.get("controller")), {})
    owner_kind, owner_name = _text(owner.get("kind"), 63), _text(owner.get("name"), 253)
    if owner_name:
        kind_of_job = (
            "Volcano Job" if str(owner.get("apiVersion") or "").startswith("batch.volcano.sh/") else owner_kind
        )
        job = JobIdentity(kind_of_job, owner_name, _text(owner.get("uid"), 64))
    else:
        job = JobIdentity("Pod group" if system == "kueue" else "PodGroup", name)
    return {
        "system": system, "kind": kind, "uid": uid, "namespace": namespace, "name": name, "owner_kind": owner_kind,
        "owner_name": owner_name, "job_key": job.key(namespace),
    }  # fmt: skip


def _amount(pods: list[list[int]]) -> dict[str, Any]:
    gpus = sum(count * each for count, each in pods)
    if not 0 < gpus <= MOST_GPUS:
        raise ValueError(f"{gpus} GPUs are no amount of a gang")
    return {"gpus": gpus, "pods": pods[:MOST_SETS]}


def _selector(sets: object) -> dict[str, str]:
    """Return the node labels that every set asks for: of several, those that they agree on."""
    selectors = []
    for part in sets if isinstance(sets, list) else ():
        chosen = _mapping(_mapping(_mapping(_mapping(part).get("template")).get("spec")).get("nodeSelector"))
        selectors.append({_text(key, 317): _text(value, 63) for key, value in chosen.items() if isinstance(value, str)})
    shared = set(selectors[0].items()).intersection(*(other.items() for other in selectors)) if selectors else set()
    return dict(sorted(shared)[:MOST_LABELS])


def _conditions(status: Raw) -> dict[str, Raw]:
    listed = status.get("conditions")
    rows: Iterable[Any] = listed if isinstance(listed, list) else ()
    return {str(row.get("type")): row for row in rows if isinstance(row, Mapping)}


def _is_true(condition: Raw | None) -> bool:
    return condition is not None and condition.get("status") == "True"


def _at(condition: Raw, created: datetime, at: datetime) -> datetime:
    """Return when the condition changed, between the object's creation and now; now where it does not say."""
    return min(max(_time(condition.get("lastTransitionTime")) or at, created), at)


def _mark(condition: Raw | None) -> datetime | None:
    return _time(condition.get("lastTransitionTime")) if condition is not None and _is_true(condition) else None


def _created(raw: Raw, at: datetime) -> datetime:
    return min(max(_time(objects.meta(raw).get("creationTimestamp")) or at, EARLIEST), at)


def _time(text: object) -> datetime | None:
    try:
        parsed = parse_datetime(text) if isinstance(text, str) and len(text) <= 40 else None
        return parsed.astimezone(UTC) if parsed and parsed.tzinfo else None
    except (ValueError, OverflowError):
        return None


def _tallied(status: Raw) -> dict[str, int]:
    """Return evictions by reason, as Kueue adds them up over the life of the workload."""
    rows = _mapping(status.get("schedulingStats")).get("evictions")
    counts: dict[str, int] = {}
    for row in rows[:256] if isinstance(rows, list) else ():
        if isinstance(row, Mapping) and (count := quantities.count(row.get("count"))):
            reason = _text(row.get("reason"), 80)
            counts[reason] = min(counts.get(reason, 0) + count, MOST_GPUS)
    return dict(sorted(counts.items())[:MOST_REASONS])


def _priority(value: object) -> int | None:
    return value if type(value) is int and -(2**31) <= value < 2**31 else None


def _mapping(value: object) -> Raw:
    return value if isinstance(value, Mapping) else {}


def _text(value: object, most: int) -> str:
    if not isinstance(value, str):
        return ""
    return "".join(letter if letter.isprintable() else " " for letter in value[:most]).strip()
