"""Simulated GPUs: each one's true state, which follows the pods that hold it, the seed and the clock.

A state is a function of the time, so nothing is stored per GPU and none is computed before it is asked for: only the
holdings are kept, from the moment the pod is bound. Exporters (`simfleet.controllers.exporters`) format the states.
"""

from __future__ import annotations

import hashlib
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from clusters import objects
from simfleet.apiserver.store import Change
from simfleet.controllers.placing import node_of
from simfleet.controllers.tenants import NOTEBOOK_SERVER
from simfleet.locking import locked
from simfleet.machines.boards import (
    ASLEEP,
    BOARDS,
    FREE,
    GIB,
    NOTEBOOK,
    SERVING,
    STARVED,
    TRAINING,
    Board,
    GpuState,
    Work,
    load,
    loaded_seconds,
)
from simfleet.machines.hardware import Hardware
from simfleet.machines.instances import Slot, requested, slots
from simfleet.machines.slowing import slowed_by

if TYPE_CHECKING:
    from simfleet.core import SimCluster

NOISE_SECONDS = 30
"""As often as exporters collect: within it a GPU's figures do not change."""
OVER_LINKS = 0.3
"""Share of NVLink's bandwidth that kernels of full occupancy use."""
MADE_JOULES = 3.6e6
"""Of a board before it came here: its counter does not begin at zero."""


@dataclass(slots=True)
class GpuHolding:
    """Holding of a GPU, or of an instance of one, by a pod or by none, and since when."""

    since: datetime
    work: Work = FREE
    """On a node that is set well for it."""
    pod: tuple[str, str, str] | None = None
    """Namespace, name, container."""
    uid: str = ""
    slowed: float = 0.0
    """By the node's kernel, since then."""

    @property
    def done(self) -> Work:
        return self.work.slowed(self.slowed)


@dataclass(frozen=True, slots=True)
class Illness:
    xid: int
    at: datetime


@dataclass(frozen=True, slots=True)
class _BoardState:
    """Values that a board has once, however it is split."""

    power: float
    energy: float
    clock: float
    xid: int


@dataclass(slots=True)
class _Node:
    name: str
    uid: str
    hardware: Hardware
    slots: tuple[Slot, ...]
    holdings: list[GpuHolding]
    joules: list[float]
    """Of holdings that ended."""
    ill: dict[int, Illness] = field(default_factory=dict)
    """By GPU."""
    pace: float = 1.0
    """What is left of the SM clock at work."""
    places: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Of the slots of each GPU."""

    def __post_init__(self) -> None:
        for place, slot in enumerate(self.slots):
            self.places[slot.index].append(place)

    @property
    def board(self) -> Board:
        return BOARDS[self.hardware.gpu_product]

    def phase(self, place: int) -> int:
        return _hash(f"{self.uid}{place}") % 628


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
        if not objects.pod_gpus(pod) or not node_of(pod):
            return
        node, uid = self._node(node_of(pod)), pod["metadata"]["uid"]
        if node is None:
            return
        if change.type == "DELETED" or objects.is_finished(pod):
            for place, holding in enumerate(node.holdings):
                if holding.uid == uid:
                    self._hand(node, place, GpuHolding(self._cluster.clock.now()))
        elif not any(holding.uid == uid for holding in node.holdings):
            self._give(node, pod)

    def _give(self, node: _Node, pod: Mapping[str, Any]) -> None:
        meta, now = pod["metadata"], self._cluster.clock.now()
        named = (meta["namespace"], meta["name"], pod["spec"]["containers"][0]["name"])
        work, slowed = self._work(pod), self._slowed(node.name)
        for resource, count in requested(pod).items():
            free = [p for p, slot in enumerate(node.slots) if slot.resource == resource and not node.holdings[p].uid]
            for place in free[:count]:
                self._hand(node, place, GpuHolding(now, work, named, meta["uid"], slowed))

    def _node(self, name: str) -> _Node | None:
        machine, stored = self._cluster.nodes.machine(name), self._cluster.store.find("nodes", name)
        if machine is None or stored is None:
            return None
        uid, now = stored.raw["metadata"]["uid"], self._cluster.clock.now()
        known = self._nodes.get(name)
        if known is None or known.uid != uid:
            node_slots = slots(machine.hardware.gpus, machine.hardware.mig)
            idle = [GpuHolding(now) for _ in node_slots]
            known = self._nodes[name] = _Node(name, uid, machine.hardware, node_slots, idle, [0.0] * len(node_slots))
        return known

    def _hand(self, node: _Node, place: int, to: GpuHolding) -> None:
        node.joules[place] += _joules(node, place, to.since)
        node.holdings[place] = to

    def _slowed(self, node: str) -> float:
        machine = self._cluster.nodes.machine(node)
        return slowed_by(machine.kernel) if machine is not None else 0.0

    def _work(self, pod: Mapping[str, Any]) -> Work:
        """Choose a pod's work by its owner: of Jobs, two in eight starve and one is idle.

        A sixth of the notebooks is idle, too, and all other pods without an owner.
        """
        kind, name = objects.controller(pod)
        if kind == "Job":
            drawn = _hash(f"{self._seed}-{name}") % 8
            return ASLEEP if drawn == 7 else STARVED if drawn in (5, 6) else TRAINING
        if (pod["metadata"].get("labels") or {}).get("component") == NOTEBOOK_SERVER:
            return NOTEBOOK if _hash(f"{self._seed}-{pod['metadata']['name']}") % 6 else ASLEEP
        return SERVING if kind else ASLEEP

    # ── what goes wrong ───────────────────────────────────────────────────────────────────────────────────────────
    @locked
    def fall_ill(self, node: str, index: int, xid: int) -> None:
        """The driver reports this XID from now on, and what runs on the GPU stops. Raises KeyError, IndexError."""
        gpu_node = self._node(node)
        if gpu_node is None:
            raise KeyError(node)
        now = self._cluster.clock.now()
        if index not in gpu_node.places:
            raise IndexError(index)
        uids = {gpu_node.holdings[place].uid for place in gpu_node.places[index]}
        for place, holding in enumerate(gpu_node.holdings):
            if place in gpu_node.places[index] or (holding.uid and holding.uid in uids):
                work = ASLEEP if holding.uid else FREE
                self._hand(gpu_node, place, GpuHolding(now, work, holding.pod, holding.uid))
        gpu_node.ill[index] = Illness(xid, now)

    @locked
    def hold_back(self, node: str, pace: float) -> None:
        """Its GPUs run at this share of their SM clock from now on. Raises KeyError."""
        gpu_node = self._node(node)
        if gpu_node is None:
            raise KeyError(node)
        gpu_node.pace = pace

    # ── what is true ──────────────────────────────────────────────────────────────────────────────────────────────
    @locked
    def truth(self, node: str) -> list[GpuState]:
        """Every GPU of a node now, by index, and instances in place of one that MIG splits.

        Empty where it has none or is down.
        """
        gpu_node, machine = self._node(node), self._cluster.nodes.machine(node)
        if gpu_node is None or machine is None or not machine.is_up:
            return []
        now = self._cluster.clock.now()
        self._look_at_kernel(gpu_node, now)
        wholes = {index: self._whole(gpu_node, index, now) for index in gpu_node.places}
        return [self._truth(gpu_node, place, wholes[slot.index], now) for place, slot in enumerate(gpu_node.slots)]

    def fleet(self) -> Iterator[GpuState]:
        """All of every node."""
        for stored in self._cluster.store.all("nodes"):
            yield from self.truth(stored.key[1])

    def _look_at_kernel(self, node: _Node, now: datetime) -> None:
        """Change the speed of work from the first look at a changed kernel; energy used until then is kept."""
        slowed = self._slowed(node.name)
        for place, holding in enumerate(node.holdings):
            if holding.slowed != slowed and holding.work.host_bound:
                self._hand(node, place, replace(holding, since=now, slowed=slowed))

    def _whole(self, node: _Node, index: int, now: datetime) -> _BoardState:
        board, uuid = node.board, self._uuid(node.uid, index)
        low, high = board.watts
        share, energy, is_at_work = 0.0, MADE_JOULES, False
        for place in node.places[index]:
            holding = node.holdings[place]
            loaded = load(holding.work, node.phase(place), now)
            share += node.slots[place].compute * loaded * holding.done.share_of_power
            energy += node.joules[place] + _joules(node, place, now)
            is_at_work = is_at_work or loaded > 0.05
        power = low + (high - low) * _about(share, f"{uuid}{_still(now)}power")
        ill = node.ill.get(index)
        mhz = board.mhz[1] * node.pace if is_at_work else board.mhz[0]
        return _BoardState(power, energy, mhz * 1e6, ill.xid if ill else 0)

    def _truth(self, node: _Node, place: int, whole: _BoardState, now: datetime) -> GpuState:
        slot, holding, board = node.slots[place], node.holdings[place], node.board
        uuid, phase = self._uuid(node.uid, slot.index), node.phase(place)
        work = holding.done
        loaded, seed = load(work, phase, now), f"{uuid}{slot.instance}{_still(now)}"
        low, high = board.watts
        heat = round(29 + 41 * (whole.power - low) / (high - low) + node.phase(slot.index) % 3)
        memory = int(slot.profile.partition(".")[2].removesuffix("gb")) * GIB if slot.profile else board.memory
        return GpuState(
            node=node.name,
            index=slot.index,
            uuid=uuid,
            board=board,
            pod=holding.pod,
            busy=round(_about(work.busy * loaded, f"{seed}busy"), 2),
            engine=_about(work.engine * loaded, f"{seed}engine"),
            sm=_about(work.sm * loaded, f"{seed}sm"),
            tensor=_about(work.tensor * loaded, f"{seed}tensor"),
            bandwidth=_about(work.bandwidth * loaded, f"{seed}bandwidth"),
            memory=memory,
            memory_used=int(memory * work.memory / GIB) * GIB if work.memory else 4 * 1024 * 1024,
            memory_reserved=int(GIB / 2 * memory / board.memory),
            power=round(whole.power, 3),
            energy=whole.energy,
            temperature=heat,
            memory_temperature=heat + 6,
            sm_clock=whole.clock,
            thermal_throttled=0.0,
            xid=whole.xid,
            rows_remapped=1 if whole.xid in (48, 95) else 0,
            instance=slot.instance,
            profile=slot.profile,
            nvlink=board.nvlink * _about(OVER_LINKS * work.sm * loaded * self._has_peers(node, place), f"{seed}nvlink"),
        )

    @staticmethod
    def _has_peers(node: _Node, place: int) -> bool:
        """Return whether its pod holds other GPUs of the node: those that it talks to over NVLink."""
        uid = node.holdings[place].uid
        return bool(uid) and sum(holding.uid == uid for holding in node.holdings) > 1

    def _uuid(self, node_uid: str, index: int) -> str:
        text = hashlib.sha256(f"{self._seed}-{node_uid}-{index}".encode()).hexdigest()
        return f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"


def _hash(text: str) -> int:
    return zlib.crc32(text.encode())


def _still(now: datetime) -> int:
    return int(now.timestamp()) // NOISE_SECONDS


def _about(value: float, seed: str) -> float:
    """A ratio, give or take 6 %."""
    return min(1.0, max(0.0, value * (1 + 0.06 * (_hash(seed) % 2001 / 1000 - 1)))) if value else 0.0


def _joules(node: _Node, place: int, until: datetime) -> float:
    """Return the energy (J) a holding has used by then: the integral of its power, without noise. Siblings share the
    board's idle power."""
    slot, holding = node.slots[place], node.holdings[place]
    low, high = node.board.watts
    seconds = (until - holding.since).total_seconds()
    work = holding.done
    loaded = loaded_seconds(work, node.phase(place), holding.since, until)
    return low * seconds / slot.siblings + (high - low) * slot.compute * work.share_of_power * loaded
