"""The node's local NVMe disks: their names and sizes, and whether one is empty.

Judged against the disk: what is in use, what cannot be read, what is not known to be in this machine, and anything but
zeros in the places that are read, is not empty. Nothing here writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from agent import signatures
from agent.host import Host
from contract.disks import EMPTY, MAX_STATE, NAMES, Disk, cleaned, is_serial

SECTOR = 512
"""The unit of /sys/block/*/size, also where the disk has larger sectors."""
LEAST_SIZE = 64 << 20
"""Bytes. Below, first and last MiB would be much of it, and no such disk is sold."""
SAMPLES = 64
SAMPLE = 4096
"""Bytes read in as many places between the two ends: a disk that is used without a mark has data somewhere."""
NETWORK_MODELS = ("Amazon Elastic Block Store", "nvme_card-pd", "MSFT NVMe Accelerator")
"""Volumes of clouds that look like local disks: one that was just attached for a pod is empty, too."""


@dataclass(frozen=True, slots=True)
class _Look:
    """A judgment of content, and what it was made of: the disk's own counters show every write since."""

    seen: tuple[str, ...]
    state: str


class Disks:
    """Disks of one node. Content is read again only after something was written to the disk."""

    def __init__(self) -> None:
        self._looks: dict[str, _Look] = {}

    def read(self, host: Host, name: str) -> Disk | None:
        """Return the disk, None if there is none of this name. Raises OSError where the kernel will not say."""
        sectors = _text(host, f"/sys/block/{name}/size")
        if name not in NAMES or not sectors.isdecimal():
            self._looks.pop(name, None)
            return None
        size = int(sectors) * SECTOR
        serial = _text(host, f"/sys/block/{name}/device/serial")
        return Disk(
            name=name,
            serial=cleaned(serial),
            model=cleaned(_text(host, f"/sys/block/{name}/device/model")),
            size=size,
            is_rotating=_text(host, f"/sys/block/{name}/queue/rotational") == "1",
            partitions=len(_partitions(host, name)),
            state=in_use(host, name) or unfit(host, name, serial, size) or self._content(host, name, serial, size),
        )

    def _content(self, host: Host, name: str, serial: str, size: int) -> str:
        seen = (host.boot_id(), serial, str(size), *writes(host, name))
        known = self._looks.get(name)
        # What could not be read is kept, too: a disk that dies may hold each read for minutes.
        if known is None or known.seen != seen or len(seen) == 3:
            known = self._looks[name] = _Look(seen, content(host, name, size))
        return known.state


def in_use(host: Host, name: str) -> str:
    """Return what uses the disk, as half a sentence; empty if nothing does that the kernel lists."""
    if partitions := _partitions(host, name):
        return f"has {len(partitions)} partition{'s' if len(partitions) > 1 else ''}"
    if holders := [path.rpartition("/")[2] for path in host.glob(f"/sys/block/{name}/holders/*")]:
        return f"is part of {', '.join(holders)}"[:MAX_STATE]
    number, device = _text(host, f"/sys/block/{name}/dev"), f"/dev/{name}"
    points = []
    for line in (host.read_text("/proc/1/mountinfo") or "").splitlines():
        fields, _, source = line.partition(" - ")  # proc(5)
        match fields.split(), source.split():
            case [_, _, of, _, point, *_], [_, what, *_] if of == number or what == device:
                points.append(point)
    if points:  # the shortest: mounts of pods come and go, and each would be another answer
        return f"is mounted at {min(points, key=lambda point: (len(point), point))}"[:MAX_STATE]
    if any(line.split()[0] == device for line in (host.read_text("/proc/swaps") or "").splitlines() if line.strip()):
        return "is swap space in use"
    return ""


def unfit(host: Host, name: str, serial: str, size: int) -> str:
    """Return why the disk is none that Setpoint would ever prepare, as half a sentence; empty otherwise."""
    model = _text(host, f"/sys/block/{name}/device/model")
    transports = {_text(host, path) for path in _transports(host, name)}
    if any(model.startswith(word) for word in NETWORK_MODELS):
        return "is a network volume"
    if transports != {"pcie"}:
        return f"is attached by {', '.join(sorted(transports - {''})) or 'an unknown transport'}, not in this machine"
    if not is_serial(serial):
        return "has no serial number that a plan can name"
    if len(host.glob(f"/sys/block/{name.removesuffix('n1')}n[0-9]*")) > 1:
        return "shares its serial number with another namespace of its controller"
    if _text(host, f"/sys/block/{name}/ro") != "0":
        return "is read-only"
    return "" if size >= LEAST_SIZE else f"has {size} bytes, less than {LEAST_SIZE}"


def content(host: Host, name: str, size: int) -> str:
    """Read the disk: `empty`, or half a sentence that says what is on it. An error counts as data."""
    try:
        return _content(lambda at, count: host.read_disk(name, at, count), size)
    except OSError as error:
        return f"cannot be read: {error.strerror or error}"[:MAX_STATE]


def _content(read: Callable[[int, int], bytes], size: int) -> str:
    head, tail = read(0, signatures.EDGE), read(size - signatures.EDGE, signatures.EDGE)
    if len(head) != signatures.EDGE or len(tail) != signatures.EDGE:
        return "cannot be read: it ends before its size"
    if not (signatures.is_zero(head) and signatures.is_zero(tail)):
        mark = signatures.name_of(head, tail, size)
        return f"has a signature: {mark}" if mark else "has data: its first or last MiB is not all zeros"
    for at in _places(size):
        if len(part := read(at, SAMPLE)) != SAMPLE or not signatures.is_zero(part):
            return f"has data: there are no zeros at byte {at}"
    return EMPTY


def _places(size: int) -> Iterator[int]:
    """Yield places between the two ends, spread evenly and aligned."""
    between = size - 2 * signatures.EDGE - SAMPLE
    yield from ((signatures.EDGE + between * n // (SAMPLES - 1)) // SAMPLE * SAMPLE for n in range(SAMPLES))


def _partitions(host: Host, name: str) -> list[str]:
    return host.glob(f"/sys/block/{name}/{name}p*/partition")


def _transports(host: Host, name: str) -> list[str]:
    """Return the files that name the transport: the controller's, or with multipath each of the subsystem's."""
    device = f"/sys/block/{name}/device"
    return host.glob(f"{device}/transport") or host.glob(f"{device}/nvme*/transport")


def writes(host: Host, name: str) -> tuple[str, ...]:
    """Return the counts of writes and discards (Documentation/block/stat.rst); empty where none are kept."""
    if _text(host, f"/sys/block/{name}/queue/iostats") != "1":
        return ()
    words = _text(host, f"/sys/block/{name}/stat").split()
    return (words[4], words[11] if len(words) > 11 else "") if len(words) > 4 else ()


def _text(host: Host, path: str) -> str:
    return (host.read_text(path) or "").strip()
