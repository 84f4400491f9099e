"""Strategy of a rollout. Every number has a bound, and the defaults are safe: canary 1, stop at the first failure."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from common.errors import Invalid
from profiles.policies import node_labels

ORDERS = {
    "idle-first": "Nodes with the fewest GPU pods first",
    "name": "By name",
    "measured": "Randomized, with a control group",
}
MEASURED = "measured"
PRIMARY_MEASURES = {
    "": "OFU, else tensor, else busy",
    "busy": "Busy",
    "tensor": "Tensor",
    "ofu": "OFU",
    "sm_clock": "SM clock",
    "throttled": "Throttled",
    "watts": "Power",
    "io_pressure": "I/O pressure of the host",
    "memory_pressure": "Memory pressure of the host",
    "cpu_pressure": "CPU pressure of the host",
    "read_latency": "Disk read latency of the host",
    "net_received": "Network received by the host",
    "rdma_received": "RDMA received by the host",
}
"""Those of gpus.effects.measures, in its order; a test keeps them equal."""
ON_FAILURE = {
    "stop": "Start nothing new and wait for an operator",
    "revert-node": "Revert the failed node, then wait for an operator",
    "revert-all": "Revert every node of this rollout",
}


@dataclass(frozen=True, slots=True)
class Strategy:
    canary: int = 1
    """Nodes in the first batch."""
    batch: str = "25%"
    """Nodes in each later batch: a count, or a percentage of all (rounded down, at least 1)."""
    max_in_flight: int = 300
    """Live steps under way at once; disruptive ones are bounded by the budget as well."""
    budget: int = 0
    """Nodes this rollout may have out of service at once; 0: the cluster's own budget. It can only lower that."""
    max_failures: int = 0
    soak_seconds: int = 0
    """After each batch, before the next one starts."""
    drain_timeout_seconds: int = 1800
    step_deadline_seconds: int = 900
    """For each stage but draining and soaking; a bare-metal GPU node's reboot takes up to 30 minutes, see
    reboot_deadline_seconds."""
    reboot_deadline_seconds: int = 2700
    component_deadline_seconds: int = 0
    """For a component to get ready, and before that for helm, which may not exceed SETPOINT_HELM_SECONDS; 0: the
    installation's own limits, SETPOINT_HELM_SECONDS and SETPOINT_READY_SECONDS."""
    order: str = "idle-first"
    domain: str = ""
    """Label of nodes that names their failure domain, such as `topology.kubernetes.io/zone`: a batch is of one domain,
    and a domain is finished before the next begins. Empty: batches go by the order alone."""
    seed: int = 0
    """Of the order `measured`, which can be drawn again from it; 0: drawn when the plan is made."""
    control: str = "25%"
    """Nodes of each kind that `measured` holds back: a count, or a percentage (rounded up, at least 1)."""
    measure_hours: int = 6
    """How long `measured` measures before and after, and holds the control back."""
    settle_minutes: int = 15
    """After the last treated node, before it measures: jobs start, caches fill, clocks rise."""
    primary_measure: str = ""
    """What the study of this rollout is about; all other measures are judged more strictly."""
    gate_xids: bool = False
    """No next batch after a new XID that is not the application's."""
    gate_throttled_points: int = 0
    """No next batch where GPUs are held back by power or heat this much longer, in percent of the time; 0: no gate."""
    gate_fall_percent: int = 0
    """No next batch where GPUs do this much less than before their node's change; 0: no gate."""
    gate_minutes: int = 20
    """How long the GPUs changed so far are watched before a gate opens."""
    on_failure: str = "stop"
    delete_empty_dir_data: bool = False
    """Consent to evict pods whose emptyDir volumes are lost."""
    delete_unmanaged_pods: bool = False
    """Consent to evict unmanaged pods, which are not recreated."""
    include_unavailable: bool = False
    """Also nodes that are not ready or cordoned by others, in their own place (law 1)."""
    include_joining: bool = False
    """Also nodes that are new to the cluster and join the pool while the rollout runs, live changes only."""
    enforce: bool = False
    """Afterwards the agent repairs drift instead of reporting it only."""

    def batch_size(self, total: int) -> int:
        if self.batch.endswith("%"):
            return max(1, total * int(self.batch[:-1]) // 100)
        return int(self.batch)

    @property
    def is_gated(self) -> bool:
        return bool(self.gate_xids or self.gate_throttled_points or self.gate_fall_percent)

    @property
    def gates(self) -> str:
        """Conditions that stop the next batch, in words: `new XIDs or a fall of 10 % or more`; empty: none."""
        words = ["new XIDs"] if self.gate_xids else []
        if self.gate_throttled_points:
            words.append(f"{self.gate_throttled_points} % of the time or more newly throttled")
        if self.gate_fall_percent:
            words.append(f"a fall of {self.gate_fall_percent} % or more")
        return " or ".join(words)

    @property
    def primary_title(self) -> str:
        return PRIMARY_MEASURES.get(self.primary_measure, self.primary_measure)

    def control_size(self, count: int) -> int:
        """Return how many of `count` alike nodes are held back: rounded up, one at least on each side; of one, none."""
        if self.order != MEASURED or count < 2:
            return 0
        size = -(-count * int(self.control[:-1]) // 100) if self.control.endswith("%") else int(self.control)
        return min(max(1, size), count - 1)

    def allowed_out(self, cluster_budget: int) -> int:
        return min(cluster_budget, self.budget) if self.budget else cluster_budget

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Strategy:
        """A stored strategy: fields newer than this code are refused by the digest, fields older get defaults."""
        return cls(**raw)


SIZES = ("batch", "control")
"""A count, or a percentage."""
CHOICES = {"order": ORDERS, "on_failure": ON_FAILURE, "primary_measure": PRIMARY_MEASURES}
BOUNDS: dict[str, tuple[int, int]] = {
    "canary": (0, 1000),
    "max_in_flight": (1, 1000),
    "budget": (0, 1000),
    "max_failures": (0, 10_000),
    "soak_seconds": (0, 7 * 86_400),
    "drain_timeout_seconds": (10, 86_400),
    "step_deadline_seconds": (10, 86_400),
    "reboot_deadline_seconds": (60, 86_400),
    "component_deadline_seconds": (0, 86_400),
    "seed": (0, 2**31 - 1),
    "measure_hours": (1, 24),  # before and after, and what is in between, must fit into three days of five minutes
    "settle_minutes": (0, 240),
    "gate_throttled_points": (0, 100),
    "gate_fall_percent": (0, 100),
    "gate_minutes": (20, 240),  # three whole five-minute values, wherever they begin
}


def parse(raw: Mapping[str, Any] | None) -> Strategy:
    """Read what a person or a client sent. Raises Invalid naming each field."""
    raw = {} if raw is None else raw
    if not isinstance(raw, Mapping):
        raise Invalid("The strategy is not valid.", fields={"strategy": ["Must be an object: names and values."]})
    errors: dict[str, list[str]] = {}
    known = {f.name: f for f in dataclasses.fields(Strategy)}
    values: dict[str, Any] = {}
    for name, value in raw.items():
        if name not in known:
            errors[f"strategy.{name}"] = [f"Unknown; a strategy has {', '.join(known)}."]
            continue
        message = _wrong(name, value)
        if message:
            errors[f"strategy.{name}"] = [message]
        else:
            values[name] = str(value) if name in SIZES else value
    errors |= _excluded(values)
    if errors:
        raise Invalid("The strategy is not valid.", fields=errors)
    return Strategy(**values)


def _excluded(values: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return what cannot be had together with a failure domain."""
    if not values.get("domain"):
        return {}
    if values.get("order") == MEASURED:
        return {"strategy.domain": ["Must be empty with the order measured, which draws nodes from all of the pool."]}
    if values.get("include_joining"):
        return {"strategy.domain": ["Must be empty with include_joining: nodes that join are of any domain."]}
    return {}


def _wrong(name: str, value: Any) -> str:
    if name in BOUNDS:
        low, high = BOUNDS[name]
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            return f"Must be a whole number from {low} to {high}."
    elif name in SIZES:
        return _wrong_size(value)
    elif name == "domain":
        return _wrong_label(value)
    elif name in CHOICES and not (isinstance(value, str) and value in CHOICES[name]):
        return f"Must be one of {', '.join(choice or 'empty' for choice in CHOICES[name])}."
    elif name in {f.name for f in dataclasses.fields(Strategy) if f.type == "bool"} and not isinstance(value, bool):
        return "Must be true or false."
    return ""


def _wrong_label(value: Any) -> str:
    if value == "" or not (reason := node_labels.bad_key(value)):
        return ""
    return f"Must be empty or a label of nodes, such as topology.kubernetes.io/zone: {reason}."


def _wrong_size(value: Any) -> str:
    hint = "Must be a count from 1 to 5000, or a percentage from 1% to 100%."
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        return hint
    text = str(value)
    number, high = (text[:-1], 100) if text.endswith("%") else (text, 5000)
    if not number.isascii() or not number.isdigit() or len(number) > 5 or not 1 <= int(number) <= high:
        return hint
    return ""
