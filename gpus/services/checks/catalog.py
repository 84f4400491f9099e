"""The catalog of checks, from checks.yaml: what each runs, for how long, and what its output is compared by."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from common import yaml
from gpus.services.checks.parsers import PARSERS

LONGEST_MINUTES = 120
GPUS, PROGRAM, OPTIONS = PLACEHOLDERS = ("{gpus}", "{program}", "{options}")
PROGRAMS = Path(__file__).with_name("programs")
LONGEST_PROGRAM = 64 * 1024
"""Bytes. Linux takes 128 KiB as one argument."""
RESOURCES: Mapping[str, str] = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}
"""By vendor: what whole GPUs are to the scheduler."""
_NEEDED = {"title", "about", "needs", "command", "minutes", "vendors", "parser", "sources"}
_FIELDS = _NEEDED | {"measures", "scratch", "shared_memory", "program"}
_NAME, _SIZE = re.compile(r"[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?"), re.compile(r"[1-9]\d{0,2}Gi")


class BadCatalog(ValueError):
    """An entry is wrong: a mistake of this project's, found when the module is imported."""


@dataclass(frozen=True, slots=True)
class Measure:
    name: str
    title: str
    unit: str
    is_higher_better: bool


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    title: str
    about: str
    needs: str
    command: tuple[str, ...]
    limit: timedelta
    vendors: tuple[str, ...]
    parser: str
    sources: tuple[str, ...]
    measures: tuple[Measure, ...] = ()
    """The first is what nodes are compared by."""
    scratch: str = ""
    shared_memory: str = ""
    program: str = ""
    """Text of the program that Setpoint brings, in place of one in the image."""

    @property
    def takes_gpus(self) -> bool:
        return bool(self.vendors)

    @property
    def takes_targets(self) -> bool:
        return OPTIONS in self.command

    def arguments(self, gpus: int, targets: Sequence[str] = ()) -> list[str]:
        given = {GPUS: str(gpus), PROGRAM: self.program, OPTIONS: json.dumps({"targets": list(targets)})}
        return [given.get(word, word) for word in self.command]


def read(raw: object) -> dict[str, Check]:
    """Raises BadCatalog."""
    if not isinstance(raw, dict):
        raise BadCatalog("the catalog is a mapping")
    return {str(name): _check(str(name), entry) for name, entry in raw.items()}


def _check(name: str, entry: Any) -> Check:
    if not isinstance(entry, dict) or not _NAME.fullmatch(name):
        raise BadCatalog(f"{name}: a name of lower-case letters, digits and hyphens, and a mapping")
    if wrong := sorted(_NEEDED - entry.keys()) + sorted(entry.keys() - _FIELDS):
        raise BadCatalog(f"{name}: fields that are missing or unknown: {wrong}")
    command, minutes = entry["command"], entry["minutes"]
    if not (isinstance(command, list) and command and all(isinstance(word, str) and word for word in command)):
        raise BadCatalog(f"{name}: command is a list of texts")
    if any("{" in word and word not in PLACEHOLDERS for word in command):
        raise BadCatalog(f"{name}: a placeholder is a whole argument, one of {PLACEHOLDERS}")
    if (PROGRAM in command) != ("program" in entry):
        raise BadCatalog(f"{name}: {PROGRAM} and the field program are there together")
    if isinstance(minutes, bool) or not isinstance(minutes, int) or not 1 <= minutes <= LONGEST_MINUTES:
        raise BadCatalog(f"{name}: minutes is 1 to {LONGEST_MINUTES}")
    if entry["parser"] not in PARSERS:
        raise BadCatalog(f"{name}: no parser {entry['parser']}")
    if not isinstance(entry["vendors"], list) or not set(entry["vendors"]) <= RESOURCES.keys():
        raise BadCatalog(f"{name}: vendors are {sorted(RESOURCES)}")
    if not entry["vendors"] and GPUS in command:
        raise BadCatalog(f"{name}: without vendors there is no {GPUS}")
    if not entry["sources"] or not all(str(url).startswith("https://") for url in entry["sources"]):
        raise BadCatalog(f"{name}: a source is an https address")
    sizes = {field: str(entry.get(field, "")) for field in ("scratch", "shared_memory")}
    if any(size and not _SIZE.fullmatch(size) for size in sizes.values()):
        raise BadCatalog(f"{name}: a size is in Gi")
    measures = tuple(_measure(name, key, about) for key, about in entry.get("measures", {}).items())
    texts = {field: str(entry[field]) for field in ("title", "about", "needs", "parser")}
    return Check(
        name=name,
        command=tuple(command),
        limit=timedelta(minutes=minutes),
        vendors=tuple(entry["vendors"]),
        sources=tuple(entry["sources"]),
        measures=measures,
        program=_program(name, entry["program"]) if "program" in entry else "",
        **texts,
        **sizes,
    )


def _program(name: str, of: Any) -> str:
    if not isinstance(of, str) or not re.fullmatch(r"[a-z_]{1,40}", of) or not (PROGRAMS / f"{of}.py").is_file():
        raise BadCatalog(f"{name}: there is no program {of}")
    text = (PROGRAMS / f"{of}.py").read_text(encoding="utf-8")
    if len(text.encode()) > LONGEST_PROGRAM or "$(" in text:
        raise BadCatalog(f"{name}: the program is too long, or contains $(, which the kubelet replaces")
    return text


def _measure(name: str, key: str, about: Any) -> Measure:
    if not isinstance(about, dict) or about.keys() != {"title", "unit", "better"}:
        raise BadCatalog(f"{name}: {key} has title, unit and better")
    if about["better"] not in ("higher", "lower"):
        raise BadCatalog(f"{name}: {key} is better when higher or lower")
    return Measure(key, str(about["title"]), str(about["unit"]), about["better"] == "higher")


CHECKS: Mapping[str, Check] = read(yaml.load(Path(__file__).with_name("checks.yaml").read_bytes()).data)
