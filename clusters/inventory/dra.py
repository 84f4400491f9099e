"""GPUs by Dynamic Resource Allocation: devices that NVIDIA's driver publishes, and those that claims were given. Pure.

Kinds of resource.k8s.io/v1 (kubernetes.io, Dynamic Resource Allocation; KEP 4381, KEP 4815 for partitions). Devices'
names and attributes are those of NVIDIA's driver (github.com/kubernetes-sigs/dra-driver-nvidia-gpu): `type` is gpu, mig
or vfio, a mig has `profile` and `parentUUID`. One that consumes no counters exists; one that does is made of its board
when a claim is given it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from clusters import objects

CLASSES = ("gpu.nvidia.com", "mig.nvidia.com", "vfio.gpu.nvidia.com")
"""DeviceClasses of the driver's chart. A claim that was given nothing yet says no more of what it wants."""
BY_EXTENDED_RESOURCE = "resource.kubernetes.io/extended-resource-claim"
"""Annotation of claims that the scheduler makes for pods which request an extended resource: the pods' requests have
those devices already."""
MOST_DEVICES = 4096
"""Of one claim or slice; Kubernetes allows 128 of a slice and 32 of a claim."""
_PCI = "resource.kubernetes.io/pciBusID"

Raw = Mapping[str, Any]


class Device(NamedTuple):
    profile: str
    """Of a MIG instance; empty: a whole GPU."""
    board: str
    is_made: bool
    """It is made of its board when a claim is given it."""


class Slice(NamedTuple):
    node: str
    pool: str
    generation: int
    product: str
    devices: dict[str, Device]


class Claim(NamedTuple):
    devices: list[str]
    """`<pool>/<device>` of what it was given; what it wants has keys that no device has."""
    pods: list[str]
    """UIDs of the pods that use it, or of the one that it was made for."""


def read_slice(raw: Raw) -> Slice | None:
    """Return a slice of NVIDIA's driver that belongs to one node; None for others."""
    spec = _map(raw.get("spec"))
    node, pool = _text(spec.get("nodeName")), _map(spec.get("pool"))
    if spec.get("driver") != objects.DRA_DRIVER or not node:
        return None
    devices, product = {}, ""
    for item in _maps(spec.get("devices"))[:MOST_DEVICES]:
        attributes, name = _map(item.get("attributes")), _text(item.get("name"))
        if name and (kind := _string(attributes, "type")) in ("gpu", "mig", "vfio"):
            product = product or _string(attributes, "productName")
            board = _string(attributes, _PCI) or _string(attributes, "parentUUID" if kind == "mig" else "uuid") or name
            profile = (_string(attributes, "profile") or "mig") if kind == "mig" else ""
            devices[name] = Device(profile, board, kind == "mig" and bool(_maps(item.get("consumesCounters"))))
    generation = pool.get("generation")
    return Slice(
        node, _text(pool.get("name")) or node, generation if isinstance(generation, int) else 0, product, devices
    )


def read_claim(raw: Raw) -> Claim | None:
    """Return a claim for devices of NVIDIA's driver that its pods hold or wait for; None for others."""
    metadata, status = _map(raw.get("metadata")), _map(raw.get("status"))
    if _map(metadata.get("annotations")).get(BY_EXTENDED_RESOURCE) == "true":
        return None
    pods = [
        _text(user.get("uid")) for user in _maps(status.get("reservedFor")) if user.get("resource", "pods") == "pods"
    ]
    allocation = _map(status.get("allocation"))
    if not allocation:
        owners = [_text(owner.get("uid")) for owner in _maps(metadata.get("ownerReferences")) if _is_pod(owner)]
        wanted = sum(_wanted(_map(raw.get("spec"))))
        keys = [f"wanted/{metadata.get('uid')}/{number}" for number in range(min(wanted, MOST_DEVICES))]
        return Claim(keys, sorted({*pods, *owners} - {""})) if keys else None
    devices = []
    for result in _maps(_map(allocation.get("devices")).get("results"))[:MOST_DEVICES]:
        if result.get("driver") == objects.DRA_DRIVER and result.get("adminAccess") is not True:
            pool, device = _text(result.get("pool")), _text(result.get("device"))
            if pool and device:
                devices.append(f"{pool}/{device}")
    return Claim(sorted({*devices}), sorted({*pods} - {""})) if devices else None


def offered(slices: Iterable[Slice], held: Iterable[str]) -> Counter[str]:
    """Count the devices of one node by profile, as telemetry sees them: instances, and boards that are whole.

    `held`: devices that pods hold, as claims name them. A board that such a part was made of is no device beside it.
    """
    newest: dict[str, list[Slice]] = {}
    for part in slices:
        known = newest.setdefault(part.pool, [part])
        if part.generation > known[0].generation:
            newest[part.pool] = [part]  # slices of older generations are being replaced
        elif part.generation == known[0].generation and part is not known[0]:
            known.append(part)
    devices = {
        f"{pool}/{name}": device
        for pool, parts in newest.items()
        for part in parts
        for name, device in part.devices.items()
    }
    there = {key: device for key, device in devices.items() if device.profile and not device.is_made}
    there |= {key: devices[key] for key in held if key in devices and devices[key].profile}
    split = {device.board for device in there.values()}
    counts = Counter(device.profile for device in there.values())
    counts[""] = len({device.board for device in devices.values()} - split)
    return +counts


def claim_names(pod: Raw) -> list[str]:
    """Return the names of the claims that a pod uses, as far as they are made."""
    made = {
        _text(item.get("name")): _text(item.get("resourceClaimName"))
        for item in _maps(_map(pod.get("status")).get("resourceClaimStatuses"))
    }
    uses = _maps(_map(pod.get("spec")).get("resourceClaims"))
    named = {_text(use.get("resourceClaimName")) or made.get(_text(use.get("name")), "") for use in uses}
    return sorted(named - {""})


def uses_claims(pod: Raw) -> bool:
    return bool(_maps(_map(pod.get("spec")).get("resourceClaims")))


def _wanted(spec: Raw) -> Iterator[int]:
    for request in _maps(_map(spec.get("devices")).get("requests")):
        exact = _map(request.get("exactly")) or next(iter(_maps(request.get("firstAvailable"))), {})
        if exact.get("deviceClassName") in CLASSES and exact.get("adminAccess") is not True:
            count = exact.get("count")
            yield count if isinstance(count, int) and not isinstance(count, bool) and count > 0 else 1


def _is_pod(owner: Raw) -> bool:
    return owner.get("kind") == "Pod" and owner.get("controller") is True


def _string(attributes: Raw, name: str) -> str:
    return _text(_map(attributes.get(name)).get("string"))


def _map(value: object) -> Raw:
    return value if isinstance(value, Mapping) else {}


def _maps(value: object) -> list[Raw]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _text(value: object) -> str:
    return value[:253] if isinstance(value, str) and "\0" not in value else ""
