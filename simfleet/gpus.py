"""What the simulated GPUs do: each one's true state, which follows the pods that hold it, the seed and the clock.

A state is a function of the time, so nothing is stored per GPU and none is computed before somebody asks: only who
holds what is kept, from the moment the pod is bound. Exporters (`simfleet.exporters`) put it into words.
"""

from __future__ import annotations

import hashlib
import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from clusters import objects
from simfleet.hardware import Hardware
from simfleet.locking import locked
from simfleet.placing import node_of
from simfleet.store import Change

if TYPE_CHECKING:
    from simfleet.core import SimCluster

NOISE_SECONDS = 30
"""As often as exporters collect: within it a GPU's figures stand still."""
GIB = 1024**3


@dataclass(frozen=True, slots=True)
class Board:
    """What a product is capable of."""

    name: str
    """As the driver says it."""
    memory: int
    watts: tuple[float, float]
    """Idle, and at full load."""
    mhz: tuple[int, int]
    """SM clock idle, and at most."""
    memory_mhz: int


BOARDS: Mapping[str, Board] = {
    "NVIDIA-H100-80GB-HBM3": Board("NVIDIA H100 80GB HBM3", 80 * GIB, (72.0, 700.0), (345, 1980), 2619),
    "NVIDIA-L40S": Board("NVIDIA L40S", 48 * GIB, (35.0, 350.0), (210, 2520), 9001),
}


@dataclass(frozen=True, slots=True)
class Work:
    """What one kind of pod does to a GPU it holds, at load 1."""

    busy: float
    engine: float
    sm: float
    tensor: float
    bandwidth: float
    memory: float
    """Share of the memory that it keeps, whatever the load."""
    swing: float = 0.0
    """How far the load falls below 1, in waves of `WAVE_SECONDS`."""
    load: float = 1.0


WAVE_SECONDS = 1200.0
FREE = Work(0.0, 0.0, 0.0, 0.0, 0.0, 0.0, load=0.0)
TRAINING = Work(0.98, 0.96, 0.86, 0.44, 0.56, 0.88)
STARVED = Work(0.72, 0.41, 0.27, 0.09, 0.16, 0.71)
"""Waits for its data most of the time."""
SERVING = Work(0.93, 0.84, 0.68, 0.26, 0.61, 0.82, swing=0.9)
ASLEEP = Work(0.0, 0.0, 0.0, 0.0, 0.0, 0.46, load=0.0)
"""Holds the GPU and its memory, and does nothing."""


@dataclass(slots=True)
class Holding:
    """A GPU in one pod's hands, or in nobody's, since when."""

    since: datetime
    work: Work = FREE
    pod: tuple[str, str, str] | None = None
    """Namespace, name, container."""
    uid: str = ""


@dataclass(frozen=True, slots=True)
class Illness:
    xid: int
    at: datetime


@dataclass(frozen=True, slots=True)
class Truth:
    """One GPU now, in base units: ratios 0–1, bytes, watts, joules, degrees, hertz, seconds."""

    node: str
    index: int
    uuid: str
    board: Board
    pod: tuple[str, str, str] | None
    busy: float
    engine: float
    sm: float
    tensor: float
    bandwidth: float
    memory_used: int
    memory_reserved: int
    power: float
    energy: float
    temperature: int
    memory_temperature: int
    sm_clock: float
    thermal_throttled: float
    xid: int
    rows_remapped: int
    """After uncorrectable errors."""

    @property
    def is_lost(self) -> bool:
        """Fell off the bus: the driver cannot ask it any more."""
        return self.xid == 79


@dataclass(slots=True)
class _Node:
    uid: str
    hardware: Hardware
    since: datetime
    holdings: list[Holding]
    joules: list[float]
    """Of holdings that ended."""
    ill: dict[int, Illness] = field(default_factory=dict)
    pace: float = 1.0
    """What is left of the SM clock."""


class Gpus:
    def __init__(self, cluster: SimCluster, seed: int) -> None:
        self._cluster, self._seed = cluster, seed
        self._nodes: dict[str, _Node] = {}
        cluster.store.listeners.append(self._changed)

    # ── who holds what ────────────────────────────────────────────────────────────────────────────────────────────
    def _changed(self, plural: str, change: Change) -> None:
        if plural == "nodes" and change.type == "DELETED":
            self._nodes.pop(change.now.key[1], None)
        if plural != "pods":
            return
        pod = change.now.raw
        wanted = objects.pod_gpus(pod)
        if not wanted or not node_of(pod):
            return
        node, uid = self._node(node_of(pod)), pod["metadata"]["uid"]
        if node is None:
            return
        if change.type == "DELETED" or objects.is_finished(pod):
            for index, holding in enumerate(node.holdings):
                if holding.uid == uid:
                    self._hand(node, index, Holding(self._cluster.clock.now()))
        elif not any(holding.uid == uid for holding in node.holdings):
            free = [index for index, holding in enumerate(node.holdings) if not holding.uid]
            namespace, name = change.now.key
            container = pod["spec"]["containers"][0]["name"]
            work = self._work(pod)
            for index in free[:wanted]:
                now = self._cluster.clock.now()
                self._hand(node, index, Holding(now, work, (namespace, name, container), uid))

    def _node(self, name: str) -> _Node | None:
        machine, stored = self._cluster.nodes.machine(name), self._cluster.store.find("nodes", name)
        if machine is None or stored is None:
            return None
        uid, now = stored.raw["metadata"]["uid"], self._cluster.clock.now()
        known = self._nodes.get(name)
        if known is None or known.uid != uid:
            count = machine.hardware.gpus
            idle = [Holding(now) for _ in range(count)]
            known = self._nodes[name] = _Node(uid, machine.hardware, now, idle, [0.0] * count)
        return known

    def _hand(self, node: _Node, index: int, to: Holding) -> None:
        before = node.holdings[index]
        node.joules[index] += _joules(_board(node.hardware), before, _phase(node.uid, index), to.since)
        node.holdings[index] = to

    def _work(self, pod: Mapping[str, Any]) -> Work:
        """By its owner; of jobs, which nobody watches one by one, some starve and some have been forgotten."""
        kind, name = objects.controller(pod)
        if kind == "Job":
            drawn = _hash(f"{self._seed}-{name}") % 8
            return ASLEEP if drawn == 7 else STARVED if drawn in (5, 6) else TRAINING
        return SERVING if kind else ASLEEP

    # ── what goes wrong ───────────────────────────────────────────────────────────────────────────────────────────
    @locked
    def fall_ill(self, node: str, index: int, xid: int) -> None:
        """The driver reports this XID from now on, and what runs on the GPU stops. Raises KeyError, IndexError."""
        found = self._node(node)
        if found is None:
            raise KeyError(node)
        holding, now = found.holdings[index], self._cluster.clock.now()
        uid = holding.uid
        for other, one in enumerate(found.holdings):
            if other == index or (uid and one.uid == uid):
                work = ASLEEP if one.uid else FREE
                self._hand(found, other, Holding(now, work, one.pod, one.uid))
        found.ill[index] = Illness(xid, now)

    @locked
    def hold_back(self, node: str, pace: float) -> None:
        """Its GPUs run at this share of their SM clock from now on. Raises KeyError."""
        found = self._node(node)
        if found is None:
            raise KeyError(node)
        found.pace = pace

    # ── what is true ──────────────────────────────────────────────────────────────────────────────────────────────
    @locked
    def truth(self, node: str) -> list[Truth]:
        """Every GPU of a node now, by index; empty where it has none or is down."""
        found, machine = self._node(node), self._cluster.nodes.machine(node)
        if found is None or machine is None or not machine.is_up:
            return []
        now = self._cluster.clock.now()
        return [self._truth(node, found, index, now) for index in range(len(found.holdings))]

    def fleet(self) -> Iterator[Truth]:
        """Every GPU of every node."""
        for stored in self._cluster.store.all("nodes"):
            yield from self.truth(stored.key[1])

    def _truth(self, name: str, node: _Node, index: int, now: datetime) -> Truth:
        holding, board = node.holdings[index], _board(node.hardware)
        uuid, phase = self._uuid(node.uid, index), _phase(node.uid, index)
        work, ill = holding.work, node.ill.get(index)
        load = _load(work, phase, now)
        still = int(now.timestamp()) // NOISE_SECONDS

        def about(value: float, what: str) -> float:
            noise = 0.06 * (_hash(f"{uuid}{still}{what}") % 2001 / 1000 - 1)
            return min(1.0, max(0.0, value * load * (1 + noise)))

        low, high = board.watts
        power = low + (high - low) * about(_share_of_power(work), "power") if load else low
        heat = 29 + 41 * (power - low) / (high - low) + phase % 3
        return Truth(
            node=name,
            index=index,
            uuid=uuid,
            board=board,
            pod=holding.pod,
            busy=round(about(work.busy, "busy"), 2),
            engine=about(work.engine, "engine"),
            sm=about(work.sm, "sm"),
            tensor=about(work.tensor, "tensor"),
            bandwidth=about(work.bandwidth, "bandwidth"),
            memory_used=int(board.memory * work.memory / GIB) * GIB if work.memory else 4 * 1024 * 1024,
            memory_reserved=GIB // 2,
            power=round(power, 3),
            energy=node.joules[index] + _joules(board, holding, phase, now) + 3.6e6,
            temperature=round(heat),
            memory_temperature=round(heat) + 6,
            sm_clock=(board.mhz[1] * node.pace if load > 0.05 else board.mhz[0]) * 1e6,
            thermal_throttled=0.0,
            xid=ill.xid if ill else 0,
            rows_remapped=1 if ill and ill.xid in (48, 95) else 0,
        )

    def _uuid(self, node_uid: str, index: int) -> str:
        text = hashlib.sha256(f"{self._seed}-{node_uid}-{index}".encode()).hexdigest()
        return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"


def _board(hardware: Hardware) -> Board:
    return BOARDS[hardware.gpu_product]


def _hash(text: str) -> int:
    return zlib.crc32(text.encode())


def _phase(node_uid: str, index: int) -> int:
    return _hash(f"{node_uid}{index}") % 628


def _load(work: Work, phase: int, at: datetime) -> float:
    """0 to 1: waves between full load and `swing` below it."""
    if not work.swing:
        return work.load
    wave = 0.5 + 0.5 * math.sin(2 * math.pi * at.timestamp() / WAVE_SECONDS + phase / 100)
    return work.load * (1 - work.swing * wave)


def _share_of_power(work: Work) -> float:
    return 0.25 * work.busy + 0.35 * work.sm + 0.6 * work.tensor + 0.15 * work.bandwidth


def _joules(board: Board, holding: Holding, phase: int, until: datetime) -> float:
    """What the holding has used by then: the integral of its power, noise apart."""
    low, high = board.watts
    begin, end = holding.since.timestamp(), until.timestamp()
    work, omega = holding.work, 2 * math.pi / WAVE_SECONDS
    shift = phase / 100
    waves = 0.5 * (end - begin) - 0.5 * (math.cos(omega * end + shift) - math.cos(omega * begin + shift)) / omega
    loaded = work.load * ((end - begin) - work.swing * waves)
    return low * (end - begin) + (high - low) * _share_of_power(work) * loaded
