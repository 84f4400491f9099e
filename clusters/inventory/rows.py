"""Values of our rows from raw Kubernetes objects. Pure, and nothing raises: objects are untrusted input.

What cannot be stored is cut or left out: text beyond its column, NUL (PostgreSQL refuses it) and lone surrogates (UTF-8
cannot carry them). An object without UID or name has no row at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from clusters import objects, tolerations
from clusters.inventory import dra, job_owner, job_role
from clusters.sharing import gpu_groups, gpu_shares
from contract import names
from contract.nodetuning import Malformed, Status

Raw = Mapping[str, Any]
Values = dict[str, Any]

NODE_FIELDS = (
    "name",
    "is_control_plane",
    "architecture",
    "os_image",
    "kernel",
    "kubelet",
    "boot_id",
    "is_ready",
    "ready_reason",
    "conditions",
    "is_cordoned",
    "cordoned_by",
    "keep_cordoned",
    "driver_upgrade",
    "labels",
    "annotations",
    "taints",
    "allocatable",
    "gpu_plugin",
    "gpu_virtual",
    "gpu_shares",
)
TUNING_ACCEPTED = ("observed_generation", "protocol", "agent_version", "status", "observed")
"""Left as they were while the agent's answer is malformed."""
TUNING_FIELDS = ("generation", "spec_step", "mode", *TUNING_ACCEPTED, "malformed")
POD_FIELDS = (
    "namespace",
    "name",
    "node_name",
    "gpus",
    "mig",
    "claims",
    "devices",
    "owner_kind",
    "owner_name",
    "job_kind",
    "job_name",
    "job_key",
    "role",
    "queue",
    "created_at",
    "running_at",
    "restarts",
    "phase",
    "started_at",
    "memory_kills",
    "memory_killed_at",
    "tolerations",
)

DRIVER_UPGRADES = ("nvidia.com/gpu-driver-upgrade-state", "nvidia.com/ofed-driver-upgrade-state")
"""Labels by which the GPU Operator and the Network Operator say how far their own upgrade of a node's driver is:
docs.nvidia.com, GPU Driver Upgrades, Upgrade State Machine."""
DRIVER_DONE = "upgrade-done"
DRIVERS_AT_REST = ("", "upgrade-required", DRIVER_DONE)
"""Not begun, or done. In every other state the operator cordons, drains or restarts something, or failed at it."""

MAX_INTEGER = 2**31 - 1
MAX_CONDITIONS = 64
MAX_ENTRIES = 512
"""Labels, annotations or resources kept of one node; the largest seen in the wild carry about 200 labels."""
MAX_ANNOTATION = 256
"""Longer annotations are machinery's (last-applied, CNI state); no profile sets one."""
MAX_REGISTERED = 65536
"""Of HAMi's annotation: about 200 characters a device."""
FOREIGN_ANNOTATIONS = ("kubernetes.io", "k8s.io")

GPU_PRODUCT_LABELS = (
    "nvidia.com/gpu.product",
    "amd.com/gpu.product-name",
    "gpu.intel.com/product",
    "cloud.google.com/gke-accelerator",
)


def identity(raw: object) -> tuple[str, str]:
    """UID and name, or two empty strings when either is missing."""
    metadata = _map(_map(raw).get("metadata"))
    uid, name = _text(metadata.get("uid"), 64), _text(metadata.get("name"), 253)
    return (uid, name) if uid and name else ("", "")


def resource_version(raw: object) -> str:
    return _text(_map(_map(raw).get("metadata")).get("resourceVersion"), 40)


def is_comparable(version: str, other: str) -> bool:
    """Kubernetes' resource versions of one resource type compare as numbers; nothing is known of others."""
    return version.isdecimal() and other.isdecimal()


def is_older(version: str, than: str) -> bool:
    return is_comparable(version, than) and int(version) < int(than)


def node(raw: object) -> Values:
    """NODE_FIELDS of one node. What counts all of its GPUs is written by clusters.inventory.allocation."""
    metadata, spec, status = _node_parts(raw)
    shaped = {"metadata": metadata, "spec": spec, "status": status}
    info = _map(status.get("nodeInfo"))
    labels, annotations = metadata["labels"], _texts(metadata.get("annotations"), 253, 4096)
    ready = objects.is_ready(shaped)
    allocatable, capacity = _texts(status.get("allocatable"), 253, 64), _texts(status.get("capacity"), 253, 64)
    # Capacity says what is built in; allocatable falls to 0 while the device plugin restarts.
    offered = capacity if objects.gpu_count(capacity) else allocatable
    registered = _text(_map(metadata.get("annotations")).get(gpu_shares.HAMI_DEVICES), MAX_REGISTERED)
    shares = gpu_shares.offered(offered, labels, registered=registered)
    beyond = sum(part.shares - part.devices for part in shares.values())
    return {
        "name": _text(metadata.get("name"), 253),
        "is_control_plane": objects.is_control_plane(shaped),
        "architecture": _text(info.get("architecture"), 20),
        "os_image": _text(info.get("osImage"), 120),
        "kernel": _text(info.get("kernelVersion"), 120),
        "kubelet": _text(info.get("kubeletVersion"), 40),
        "boot_id": _text(info.get("bootID"), 64),
        "is_ready": ready,
        "ready_reason": "" if ready else _why_not_ready(status["conditions"]),
        "conditions": [_condition(item) for item in status["conditions"][:MAX_CONDITIONS]],
        "is_cordoned": spec.get("unschedulable") is True,
        "cordoned_by": annotations.get(names.CORDONED_BY, "")[:200],
        "keep_cordoned": names.KEEP_CORDONED in annotations,
        "driver_upgrade": _driver_upgrade(labels),
        "labels": labels,
        "annotations": {k: v for k, v in annotations.items() if _may_be_owned(k, v)},
        "taints": [
            {"key": _text(t.get("key"), 317), "value": _text(t.get("value"), 63), "effect": _text(t.get("effect"), 20)}
            for t in _maps(spec.get("taints"))[:MAX_ENTRIES]
        ],
        "allocatable": allocatable,
        "gpu_plugin": _bounded(objects.gpu_count(offered) - beyond),
        "gpu_virtual": _bounded(objects.virtual_count(offered)),
        "gpu_shares": {name: list(map(_bounded, part)) for name, part in sorted(shares.items())},
    }


def product(labels: Mapping[str, str]) -> str:
    """Return the board's name, without what GPU feature discovery adds where its shares keep the resource's name."""
    return next((labels[key] for key in GPU_PRODUCT_LABELS if labels.get(key)), "").removesuffix("-SHARED")[:120]


def _driver_upgrade(labels: Mapping[str, str]) -> str:
    states = (labels.get(key, "") for key in DRIVER_UPGRADES)
    return next((state for state in states if state not in DRIVERS_AT_REST), "")


def tuning(raw: object, node_uid: str) -> Values | None:
    """TUNING_FIELDS of the NodeTuning of the node with this UID; without TUNING_ACCEPTED where the agent's answer is
    malformed. None when the object belongs to another node: one that had the same name before.
    """
    metadata, spec = _map(_map(raw).get("metadata")), _map(_map(raw).get("spec"))
    if spec.get("nodeUID") != node_uid:
        return None
    values: Values = {
        "generation": _bounded(metadata.get("generation"), 2**53),
        "spec_step": _text(spec.get("step"), 64),
        "mode": _text(spec.get("mode"), 10),
        "malformed": "",
    }
    answered = _map(raw).get("status") or {}
    try:
        return values | _accepted(answered, node_uid)
    except Malformed as error:
        return values | {"malformed": _text(f"status: {error}", 300)}


def _accepted(answered: object, node_uid: str) -> Values:
    """TUNING_ACCEPTED. Raises Malformed."""
    if not isinstance(answered, Mapping):
        raise Malformed("must be an object")
    status = Status.from_json(answered)
    if status.node_uid and status.node_uid != node_uid:
        raise Malformed("nodeUID: names another node")
    if status.protocol > MAX_INTEGER:
        raise Malformed("protocol: is not a version")
    body = status.to_json()
    del body["observed"]
    if not _is_all_storable([body, dict(status.observed)]):
        raise Malformed("holds characters that are not text")
    return {
        "observed_generation": status.observed_generation,
        "protocol": status.protocol if answered else 0,
        "agent_version": status.agent_version[:40],
        "status": body if answered else {},
        "observed": dict(status.observed),
    }


def gpu_pod(raw: object, devices: Mapping[str, str] | None = None) -> Values | None:
    """POD_FIELDS of a pod that holds or waits for GPUs, shares or reserves one, or uses claims; None for every other.

    `devices`: those that its claims were given, with the profile of each. Of a pod that reserves one, `gpus` is 0.
    """
    # A mapping in a wrong place makes the shared readers raise; such a pod holds no GPUs that can be known.
    try:
        pod = _map(raw)
        gpus, has_claims = objects.pod_gpus(pod), dra.uses_claims(pod)
        shared = {} if has_claims else gpu_groups.devices(pod)
        if objects.is_finished(pod) or not (gpus or shared or has_claims):
            return None
        kind, owner = objects.controller(pod)
        split = objects.pod_instances(pod)
        given = dict(sorted((devices or {}).items())) if has_claims else shared
        is_reservation = bool(shared) and gpu_groups.is_reservation(pod)
        split.update(profile for profile in given.values() if profile)
        job = _job(pod)
    except (AttributeError, TypeError):
        return None
    metadata, spec, status = _map(pod.get("metadata")), _map(pod.get("spec")), _map(pod.get("status"))
    return {
        "namespace": _text(metadata.get("namespace"), 63),
        "name": _text(metadata.get("name"), 253),
        "node_name": _text(spec.get("nodeName"), 253),
        "gpus": 0 if is_reservation else _bounded(gpus + len(given)),
        "mig": {_text(name, 63): _bounded(count) for name, count in sorted(split.items())[:MAX_ENTRIES]},
        "claims": dra.claim_names(pod)[:MAX_ENTRIES],
        "devices": given,
        "owner_kind": _text(kind, 63),
        "owner_name": _text(owner, 253),
        **job,
        "phase": _text(status.get("phase"), 20),
        "started_at": instant(status.get("startTime")),
        **_memory_kills(pod),
        "tolerations": [
            toleration for toleration in tolerations.brief(pod) if all(map(_is_all_storable, toleration.values()))
        ],
    }


def _job(pod: Mapping[str, Any]) -> Values:
    """Return the job that a pod belongs to, and what the job's life is told by."""
    job, metadata, statuses = job_owner.identify(pod), _map(pod.get("metadata")), _container_statuses(pod)
    return {
        "job_kind": _text(job.kind, 63),
        "job_name": _text(job.name, 253),
        "job_key": _text(job.key(str(metadata.get("namespace"))), 64),
        "role": _text(job_role.role(pod), job_role.LONGEST),
        "queue": _text(job_owner.queue(pod), 253),
        "created_at": instant(metadata.get("creationTimestamp")),
        "running_at": _running_at(pod, statuses),
        "restarts": _bounded(sum(_bounded(status.get("restartCount")) for status in statuses)),
    }


def _running_at(pod: Mapping[str, Any], statuses: Iterable[Raw]) -> datetime | None:
    """Return since when a running pod's containers run; the pod's own start where no container tells."""
    status = _map(pod.get("status"))
    if status.get("phase") != "Running":
        return None
    begins = [instant(_map(_map(item.get("state")).get("running")).get("startedAt")) for item in statuses]
    return max((at for at in begins if at), default=None) or instant(status.get("startTime"))


def finished_at(pod: Raw) -> datetime | None:
    """Return when the last of a finished pod's containers ended; None where none tells."""
    states = [_map(_map(item.get("state")).get("terminated")) for item in _container_statuses(pod)]
    return max((at for state in states if (at := instant(state.get("finishedAt")))), default=None)


def _container_statuses(pod: Raw) -> list[Raw]:
    return _maps(_map(pod.get("status")).get("containerStatuses"))


def _memory_kills(pod: Mapping[str, Any]) -> Values:
    """Return what is known of a pod's kills: nothing where its statuses are malformed; its GPUs count all the same."""
    try:
        kills, at = objects.memory_kills(pod)
    except (AttributeError, TypeError):
        kills, at = 0, ""
    return {"memory_kills": _bounded(kills), "memory_killed_at": instant(at)}


def holds_gpus(raw: object) -> bool:
    """Return whether it is a pod that requests GPUs, shares one or uses claims, finished or not."""
    try:
        pod = _map(raw)
        return objects.pod_gpus(pod) > 0 or dra.uses_claims(pod) or bool(gpu_groups.devices(pod))
    except (AttributeError, TypeError):
        return False


def renewed_at(lease: object) -> datetime | None:
    return instant(_map(_map(lease).get("spec")).get("renewTime"))


def instant(value: object) -> datetime | None:
    """RFC 3339 as Kubernetes writes it; None for anything else."""
    if not isinstance(value, str) or not 20 <= len(value) <= 40:
        return None
    try:
        at = datetime.fromisoformat(value)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _node_parts(raw: object) -> tuple[Values, Values, Values]:
    """Metadata, spec and status of which labels and conditions have the shape that the shared readers rely on."""
    whole = _map(raw)
    metadata, status = dict(_map(whole.get("metadata"))), dict(_map(whole.get("status")))
    metadata["labels"] = _texts(metadata.get("labels"), 317, 63)
    status["conditions"] = _maps(status.get("conditions"))
    return metadata, dict(_map(whole.get("spec"))), status


def _condition(item: Raw) -> Values:
    """Return a condition's values without lastHeartbeatTime, which changes when nothing else does."""
    return {
        "type": _text(item.get("type"), 120),
        "status": _text(item.get("status"), 20),
        "reason": _text(item.get("reason"), 120),
        "message": _text(item.get("message"), 500),
        "since": _text(item.get("lastTransitionTime"), 40),
    }


def _why_not_ready(conditions: Iterable[Raw]) -> str:
    for item in conditions:
        if item.get("type") == "Ready":
            reason, message = _text(item.get("reason"), 120), _text(item.get("message"), 300)
            return f"{reason}: {message}"[:300] if reason and message else reason or message or "NotReady"
    return "the node reports no Ready condition"


def _may_be_owned(key: str, value: str) -> bool:
    """A profile may set it, so a plan needs its value: not Kubernetes' own, and short."""
    prefix = key.rpartition("/")[0]
    return len(value) <= MAX_ANNOTATION and not any(
        prefix == domain or prefix.endswith("." + domain) for domain in FOREIGN_ANNOTATIONS
    )


def _map(value: object) -> Raw:
    return value if isinstance(value, Mapping) else {}


def _maps(value: object) -> list[Raw]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _texts(value: object, key_limit: int, value_limit: int) -> dict[str, str]:
    """The entries whose value is text; those beyond a limit are left out, for half a label is another label."""
    out: dict[str, str] = {}
    for key, item in _map(value).items():
        text = item if isinstance(item, str) else str(item) if type(item) is int else None
        if text is None or not isinstance(key, str) or len(key) > key_limit or len(text) > value_limit:
            continue
        if _is_storable(key) and _is_storable(text) and len(out) < MAX_ENTRIES:
            out[key] = text
    return out


def _text(value: object, limit: int) -> str:
    if not isinstance(value, str):
        return ""
    if not _is_storable(value):
        value = value.replace("\0", "").encode("utf-8", "replace").decode()
    return value[:limit]


def _is_storable(text: str) -> bool:
    if "\0" in text:
        return False
    if text.isascii():
        return True
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _is_all_storable(value: object) -> bool:
    if isinstance(value, str):
        return _is_storable(value)
    if isinstance(value, Mapping):
        return all(_is_storable(key) and _is_all_storable(item) for key, item in value.items())
    return all(_is_all_storable(item) for item in value) if isinstance(value, list) else True


def _bounded(value: object, most: int = MAX_INTEGER) -> int:
    return min(max(value, 0), most) if isinstance(value, int) and not isinstance(value, bool) else 0
