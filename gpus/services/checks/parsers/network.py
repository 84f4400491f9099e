"""Parser of programs/network.py: one JSON object, each field of each probe judged.

{"setpoint_network": 1, "python": "3.13.1", "probes": [{"kind": "dns", "target": .., "server": .., "answered": 9,
"failures": {"silent": 1}, "p50_ms": .., "max_ms": .., "received": 0}], "is_complete": true}
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpus.services.checks.programs import network as program
from gpus.services.checks.verdicts import MOST_NOTES, NotUnderstood, Verdict, json_object, note, number

LONGEST = 256 * 1024
"""Characters. Three servers, nine names and eight targets are below 16 KiB."""
MOST_PROBES = 64
LEAST = {"dns": program.TRIES, "tcp": program.TRIES, "https": program.EXCHANGES}
"""Tries by kind, without which nothing passes."""
_ROOT = {"setpoint_network", "python", "probes", "is_complete"}
_PROBE = {"kind", "target", "server", "answered", "failures", "p50_ms", "max_ms", "received"}
_TARGET = re.compile(r"[a-z0-9_.:\[\]-]{1,260}")
_SERVER = re.compile(r"[0-9a-zA-Z.:%_-]{1,80}")
_VERSION = re.compile(r"\d{1,2}\.\d{1,3}\.\d{1,3}[a-z0-9+]{0,10}")
WORDS: Mapping[str, str] = {
    "silent": "no answer",
    "refused": "refused: nothing listens there, or a policy rejects it",
    "unreachable": "no route to it",
    "closed": "closed without an answer",
    "garbage": "an answer that is none to what was asked",
    "tls": "an answer that is not TLS",
    "server-error": "the name server's own error",
    "no-such-name": "the name does not exist",
    "no-address": "the name has no address",
    "no-server": "resolv.conf has no name server",
    "no-service": "Kubernetes gave the pod no address of the API server",
    "no-time": "not tried any more: others took too long",
}
LARGE = "Connections work, and requests of full packets get no answer: the path may lose large packets (MTU)."
NOTHING = (
    "Nothing was reached at all. Where no node reaches anything, apply deploy/setpoint-checks.yaml again: its older "
    "version gives no check a network."
)


@dataclass(frozen=True, slots=True)
class _Probe:
    kind: str
    target: str
    server: str
    answered: int
    failures: Mapping[str, int]
    median: float
    slowest: float

    @property
    def failed(self) -> int:
        return sum(self.failures.values())

    def sentence(self) -> str:
        whys = ", ".join(WORDS[why] for why in self.failures)
        what = {"dns": "queries for", "tcp": "connections to", "https": "large requests to"}[self.kind]
        where = f" at {self.server}" if self.server else ""
        return f"{self.failed} of {self.failed + self.answered} {what} {self.target}{where}: {whys}"


def parse(text: str) -> Verdict:
    """Passed: every try of every target was answered. Raises NotUnderstood."""
    if len(text) > LONGEST:
        raise NotUnderstood("The output is longer than this check's can be.")
    document = json_object(text)
    version = document.get("python")
    if document.keys() != _ROOT or document["is_complete"] is not True:
        raise NotUnderstood("The output is not this check's, or does not go to its end.")
    if isinstance(document["setpoint_network"], bool) or document["setpoint_network"] != program.FORMAT:
        raise NotUnderstood("The output is of another version of this check.")
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise NotUnderstood("The output has no version of Python.")
    raw = document["probes"]
    if not isinstance(raw, list) or not 1 <= len(raw) <= MOST_PROBES:
        raise NotUnderstood("The output has no probes, or more than a check makes.")
    probes = [_probe(entry) for entry in raw]
    if len({(probe.kind, probe.target, probe.server) for probe in probes}) != len(probes):
        raise NotUnderstood("A probe is there twice.")
    _require_all(probes)
    return _verdict(probes, version)


def _probe(raw: Any) -> _Probe:
    if not isinstance(raw, dict) or raw.keys() != _PROBE:
        raise NotUnderstood("A probe has fields that are missing or unknown.")
    kind, target, server, failures = raw["kind"], raw["target"], raw["server"], raw["failures"]
    if not isinstance(kind, str) or kind not in LEAST:
        raise NotUnderstood("A probe is of no kind that is known.")
    if not isinstance(target, str) or not _TARGET.fullmatch(target):
        raise NotUnderstood("A probe has no target.")
    if not isinstance(server, str) or (server and not _SERVER.fullmatch(server)) or (server and kind != "dns"):
        raise NotUnderstood(f"The probe of {target} has a name server that cannot be.")
    if not isinstance(failures, dict) or not failures.keys() <= WORDS.keys():
        raise NotUnderstood(f"The probe of {target} failed in a way that is not known.")
    counts = {why: _count(count, f"A count of {target}") for why, count in failures.items()}
    answered = _count(raw["answered"], f"A count of {target}")
    tries = answered + sum(counts.values())
    if tries > LEAST[kind] or 0 in counts.values() or (not counts and tries != LEAST[kind]):
        raise NotUnderstood(f"The probe of {target} has a count of tries that cannot be.")
    _count(raw["received"], f"A size of {target}", most=1024 * 1024)
    times = [raw["p50_ms"], raw["max_ms"]]
    if not answered:
        if times != [None, None]:
            raise NotUnderstood(f"The probe of {target} has times without answers.")
        return _Probe(kind, target, server, 0, counts, 0.0, 0.0)
    median, slowest = (number(value, f"A time of {target}") for value in times)
    if not median <= slowest <= 1000 * 2 * program.LONGEST:
        raise NotUnderstood(f"The times of {target} contradict each other.")
    return _Probe(kind, target, server, answered, counts, median, slowest)


def _count(value: object, what: str, *, most: int = 100) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= most:
        raise NotUnderstood(f"{what} is no count.")
    return value


def _require_all(probes: list[_Probe]) -> None:
    """Refuse an output that lacks one of the three things that this check is about. Raises NotUnderstood."""
    own_name = [probe for probe in probes if probe.kind == "dns" and probe.target.startswith(f"{program.SERVICE}.")]
    if not own_name or not any(probe.kind == "https" for probe in probes):
        raise NotUnderstood("The output lacks the API server, or its name.")
    if {p.target for p in probes if p.kind == "https"} - {p.target for p in probes if p.kind == "tcp"}:
        raise NotUnderstood("The output lacks the connection to the API server.")
    names = {probe.target for probe in probes if probe.kind == "dns"}
    resolved = {(probe.target, probe.server) for probe in probes if probe.kind == "dns"}
    if resolved != {(name, server) for name in names for server in _servers(probes)}:
        raise NotUnderstood("A name was not resolved by each name server.")


def _servers(probes: list[_Probe]) -> list[str]:
    return list(dict.fromkeys(probe.server for probe in probes if probe.kind == "dns"))


def _verdict(probes: list[_Probe], version: str) -> Verdict:
    failed = [probe for probe in probes if probe.failures]
    measures = {"failed": float(sum(probe.failed for probe in probes))}
    for kind, name, has_slowest in (("dns", "dns", True), ("tcp", "connect", True), ("https", "exchange", False)):
        answered = [probe for probe in probes if probe.kind == kind and probe.answered]
        if answered:
            measures[f"{name}_median"] = statistics.median(probe.median for probe in answered)
            if has_slowest:
                measures[f"{name}_slowest"] = max(probe.slowest for probe in answered)
    about: dict[str, Any] = {
        "measures": measures,
        "version": f"Python {version}",
        "covers": frozenset(probe.target for probe in probes),
    }
    if not failed:
        dns, servers = f"{measures['dns_median']:.1f} ms, slowest {measures['dns_slowest']:.1f} ms", _servers(probes)
        words = f"No loss: {len(about['covers'])} targets, {len(servers)} name server{'s' if len(servers) > 1 else ''}"
        return Verdict(True, f"{words}; DNS {dns}", **about)
    notes = [note(probe.sentence()) for probe in failed]
    if not any(probe.answered for probe in probes):
        notes.insert(0, NOTHING)
    elif _loses_large_packets(probes):
        notes.insert(0, LARGE)
    others = f", and {len(failed) - 1} more" if len(failed) > 1 else ""
    return Verdict(False, f"{note(failed[0].sentence())}{others}", notes=tuple(notes[:MOST_NOTES]), **about)


def _loses_large_packets(probes: list[_Probe]) -> bool:
    silent = {probe.target for probe in probes if probe.kind == "https" and "silent" in probe.failures}
    return any(probe.kind == "tcp" and probe.target in silent and not probe.failures for probe in probes)
