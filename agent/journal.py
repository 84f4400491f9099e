"""The agent's durable state: the originals, what it wrote, and the restarts that it has already carried out.

One small file on the node's own disk, replaced as a whole and durable before the kernel is touched (law 7). A file that
does not match its digest is never guessed at: the agent stops writing until an operator acts.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from agent.host import replace_file

FORMAT = 1
KEPT_GRANTS = 64
"""Spent grants remembered. A grant names the boot it may end: one of another boot than the node's can be forgotten."""


class JournalCorrupt(Exception):
    """The journal exists and cannot be believed. `str()` says why."""


class Store(Protocol):
    def load(self) -> str | None:
        """The text saved last, None if nothing ever was. Raises OSError."""

    def save(self, text: str) -> None:
        """Durable when it returns; after a crash the old text or the new one is there, whole. Raises OSError."""


class FileStore:
    """The journal as a file on the node's own disk."""

    def __init__(self, path: str) -> None:
        self._path = path

    def load(self) -> str | None:
        try:
            fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)  # a pipe would be waited for
            with open(fd, encoding="utf-8", errors="replace") as file:
                return file.read()
        except FileNotFoundError:
            return None

    def save(self, text: str) -> None:
        replace_file(self._path, text)


@dataclass(slots=True)
class JournalEntry:
    """One key that Setpoint touched, from just before its first write until it is restored."""

    original: str | None
    places: dict[str, str] = field(default_factory=dict)
    """The original in each file, for kinds that have several."""
    written: str | None = None
    """What was asked of the kernel last; None for a key that only changed along with another one."""
    answered: str | None = None
    """What the kernel answered right after the write."""
    done: bool = False
    """False between the journal's word and the kernel's: the write may or may not have happened."""
    before: str | None = None
    """`written` before an intent that is not done yet, to fall back to when the kernel refuses."""


@dataclass(slots=True)
class Pending:
    """A restart that a written value still waits for."""

    action: str
    boot_id: str
    run: str | None = None
    """A run of the service to restart that began before the write was over: any other one has seen what was written.
    Empty while there was none; None until the write is over."""


@dataclass(slots=True)
class Grant:
    action: str
    boot_id: str
    state: str
    reason: str = ""
    run: str = ""
    """Which run of the kubelet it was to end, to tell after a crash whether it did."""


@dataclass(slots=True)
class KeyOutcome:
    state: str
    reason: str = ""
    original: str | None = None
    note: str = ""
    """To say while the value holds: what ended a wait for a restart, if that was not Setpoint."""


@dataclass(slots=True)
class Attempt:
    """Progress and outcome of one spec, kept so that an agent that restarts reports it and does not repeat it."""

    id: str = ""
    done: bool = False
    outcomes: dict[str, KeyOutcome] = field(default_factory=dict)
    absent: list[str] = field(default_factory=list)
    """Keys that the kernel lacked when the attempt began; a module of the same step may bring them."""
    seen: dict[str, dict[str, str]] = field(default_factory=dict)
    """Per key with several places, the value in each before the attempt's first write: an attempt that is cut short
    leaves some places written and some not, which is neither what the plan saw nor what it wants."""


@dataclass(slots=True)
class LoadedConfig:
    """Configuration that one run of the kubelet was started with, read when the run is first seen."""

    boot_id: str = ""
    run: str = ""
    values: dict[str, str] = field(default_factory=dict)
    """By key."""
    unknown: str = ""
    """Why the values are not known, as half a sentence; empty when they are."""
    files: dict[str, str] = field(default_factory=dict)
    """Digest of each file that it read, but for Setpoint's own."""
    managers_unknown: str = ""
    """Why the values of its resource managers alone are not known."""


@dataclass(slots=True)
class ManagerTrial:
    """A change of the kubelet's resource managers, from before its files are prepared until it is kept or undone."""

    grant: str
    boot_id: str
    run: str
    """The kubelet's run that it ends."""
    began: float
    """Uptime of that boot, in seconds."""
    folder: str
    """The kubelet's --config-dir."""
    keys: dict[str, str] = field(default_factory=dict)
    """What Setpoint's drop-in says if the change is kept."""


@dataclass(slots=True)
class Guarded:
    """Values that network cards get back unless a change of them, in this boot, leaves the node reachable."""

    boot_id: str = ""
    places: dict[str, str] = field(default_factory=dict)
    """In the order of the writes."""


@dataclass(slots=True)
class LaidDisk:
    """A disk of a layout, by what an approved plan calls it."""

    serial: str
    state: str = ""
    """Empty: not touched. `formatting`: from just before its program runs. `formatted`: the program succeeded. Before
    these, for disks of an array: `joining` and `joined`, likewise."""


@dataclass(slots=True)
class DiskLayout:
    """Layout of local disks that is being made or was made, from just before the first is formatted until revert."""

    value: str = ""
    """Empty: there is none."""
    disks: list[LaidDisk] = field(default_factory=list)
    done: bool = False
    """All were formatted and mounted; what is wrong with it since then is drift."""


@dataclass(slots=True)
class JournalContent:
    entries: dict[str, JournalEntry] = field(default_factory=dict)
    pending: dict[str, Pending] = field(default_factory=dict)
    attempt: Attempt = field(default_factory=Attempt)
    grants: dict[str, Grant] = field(default_factory=dict)
    repairs: dict[str, list[float]] = field(default_factory=dict)
    """Times (s since the epoch) of the latest repairs of a drifting key."""
    boot_loader_stale: bool = False
    """The boot loader's files changed and update-grub has not succeeded since."""
    booted: dict[str, str] | None = field(default_factory=dict)
    """Kernel arguments of Setpoint's, by key, with which the node came up last; None from an older agent."""
    trial: str = ""
    """Name of the arguments that GRUB's menu has for one boot only; empty while it has all for good."""
    armed: str = ""
    """The boot after which the trial comes."""
    kubelet: LoadedConfig = field(default_factory=LoadedConfig)
    units_stale: bool = False
    """Drop-ins of systemd units changed and `systemctl daemon-reload` has not succeeded since."""
    guarded: Guarded = field(default_factory=Guarded)
    managers: ManagerTrial | None = None
    cards_boot: str = ""
    """The boot in which network cards were written last: they keep no value over the next one."""
    layout: DiskLayout = field(default_factory=DiskLayout)


class Journal:
    """Loaded once; `save` after every change that must outlive the agent."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.content = JournalContent()
        self.corrupt: str | None = None
        """Why the journal cannot be believed; nothing may be written to the node then."""
        self._saved = _encode(self.content)  # an empty journal needs no file
        try:
            text = store.load()
            if text is not None:
                self.content, self._saved = _decode(text), text
        except JournalCorrupt as error:
            self.corrupt = str(error)
        except OSError as error:
            self.corrupt = f"it cannot be read: {error.strerror}"

    def save(self) -> None:
        """Write if anything changed. Raises JournalCorrupt, OSError."""
        if self.corrupt:
            raise JournalCorrupt(self.corrupt)
        text = _encode(self.content)
        if text != self._saved:
            self._store.save(text)
            self._saved = text

    def remember_grant(self, name: str, grant: Grant, boot_id: str) -> None:
        """Note a grant that is spent in boot `boot_id`; of too many the oldest that name another are forgotten."""
        grants = self.content.grants
        old = [other for other, grant_of_other in grants.items() if grant_of_other.boot_id != boot_id and other != name]
        grants[name] = grant
        for other in old[: max(0, len(grants) - KEPT_GRANTS)]:
            del grants[other]


def _encode(content: JournalContent) -> str:
    # Every look at the node encodes this; dataclasses.asdict would copy all of it first.
    body = json.dumps({"format": FORMAT} | _fields(content), separators=(",", ":"), default=_fields)
    return f"{hashlib.sha256(body.encode()).hexdigest()}\n{body}\n"


def _fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__slots__}


def _decode(text: str) -> JournalContent:
    digest, _, body = text.partition("\n")
    body = body.removesuffix("\n")
    if hashlib.sha256(body.encode()).hexdigest() != digest:
        raise JournalCorrupt("its digest does not match its content")
    try:
        raw = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise JournalCorrupt("it is no JSON") from error
    if not isinstance(raw, dict):
        raise JournalCorrupt("it is no JSON object")
    if raw.get("format") != FORMAT:
        raise JournalCorrupt(f"it has format {raw.get('format')}, and this agent knows {FORMAT}")
    try:
        return _content(raw)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise JournalCorrupt(f"another version of the agent wrote it ({error}): bring that version back") from error


def _content(raw: Mapping[str, Any]) -> JournalContent:
    attempt = raw["attempt"]
    return JournalContent(
        entries={key: JournalEntry(**entry) for key, entry in raw["entries"].items()},
        pending={key: Pending(**pending) for key, pending in raw["pending"].items()},
        attempt=Attempt(**attempt | {"outcomes": {k: KeyOutcome(**o) for k, o in attempt["outcomes"].items()}}),
        grants={name: Grant(**grant) for name, grant in raw["grants"].items()},
        repairs=dict(raw["repairs"]),
        boot_loader_stale=raw["boot_loader_stale"],
        booted=None if raw.get("booted") is None else dict(raw["booted"]),
        trial=raw.get("trial", ""),
        armed=raw.get("armed", ""),
        kubelet=LoadedConfig(**raw.get("kubelet", {})),
        units_stale=raw.get("units_stale", False),
        guarded=Guarded(**raw.get("guarded", {})),
        managers=ManagerTrial(**raw["managers"]) if raw.get("managers") else None,
        cards_boot=raw.get("cards_boot", ""),
        layout=_layout(raw.get("layout", {})),
    )


def _layout(raw: Mapping[str, Any]) -> DiskLayout:
    return DiskLayout(**{**raw, "disks": [LaidDisk(**disk) for disk in raw.get("disks", ())]})
