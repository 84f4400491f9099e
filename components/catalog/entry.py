"""Catalog entry of one component: the vocabulary that the rest of the room uses.

Immutable data with a few questions that need nothing else. `loader` makes one of these from a file.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from components.catalog.effects import UNCLASSIFIED, UNTESTED, ComponentEffects
from components.catalog.replacements import Replacement
from components.catalog.versions import Citation, Tested, Upgrades, is_within, range_text, same_version
from components.values.clauses import Clause, look_up

NODES = "nodes"
"""In `after`: the settings, labels and taints of the same plan's nodes. No component has this name."""

_FULLNAME = re.compile(r"\{fullname(?::(\d+))?\}")

INTENTS = ("gpu-baseline", "training", "training-rdma", "inference", "model-load", "storage")
"""The profiles that come with Setpoint, by name: what a preset is meant for."""


@dataclass(frozen=True, slots=True)
class ChartReference:
    kind: str
    """http: a repository with an index.yaml. oci: a registry; `url` names the folder, `chart` the artifact in it."""
    url: str
    chart: str
    hosts: tuple[str, ...] = ()
    """Other hosts that a download may be redirected to."""

    @property
    def reference(self) -> str:
        return f"{self.url}/{self.chart}"


@dataclass(frozen=True, slots=True)
class Preset:
    name: str
    title: str
    why: str
    values: Mapping[str, Any]
    intents: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()
    """Presets of the same component that say the opposite."""
    requires: tuple[str, ...] = ()
    """Components that this preset needs there first, besides the component's own."""
    needs: tuple[str, ...] = ()
    """Presets of the same component without whose values this one does not work."""
    versions: str = ""
    """Range of chart versions that it works with, as `>=1.16`; empty: all."""
    kernel: str = ""
    """Linux that its nodes need, as `>=6.8`; empty: nothing beyond the component's own need."""
    sources: tuple[Citation, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """A value that a person must give, because every guess would be wrong somewhere."""

    path: str
    question: str
    presets: tuple[str, ...] = ()
    """Asked only where one of these presets is used; empty: always."""
    unless: tuple[Clause, ...] = ()
    """Not asked where one of these holds."""
    is_required: bool = True
    """Nothing is installed without it. Otherwise the chart's default applies, with a warning."""
    example: str = ""
    sources: tuple[Citation, ...] = ()

    def is_open(self, presets: Iterable[str], values: Mapping[str, Any]) -> bool:
        if self.presets and not {*self.presets} & {*presets}:
            return False
        if any(clause.holds(values) for clause in self.unless):
            return False
        return look_up(values, self.path) in (None, "", [], {})


WORKLOADS = ("DaemonSet", "Deployment", "StatefulSet")


@dataclass(frozen=True, slots=True)
class WorkloadPattern:
    """Workloads by which something is recognized in a cluster, installed by helm or without it."""

    kind: str
    """DaemonSet, Deployment or StatefulSet."""
    names: tuple[str, ...]
    """`*` is anything."""
    namespaces: tuple[str, ...] = ()
    """Empty: any."""

    def is_about(self, namespace: str, name: str) -> bool:
        if self.namespaces and namespace not in self.namespaces:
            return False
        return any(fnmatchcase(name, pattern) for pattern in self.names)

    def __str__(self) -> str:
        inside = f" in {' or '.join(self.namespaces)}" if self.namespaces else ""
        return f"{self.kind} {' or '.join(self.names)}{inside}"


@dataclass(frozen=True, slots=True)
class ComponentConflict:
    """A component and another, or a foreign workload, that fight over something, and what settles it."""

    other: str
    """A component of the catalog; empty: what `title` names, which the catalog does not install."""
    why: str
    title: str = ""
    workloads: WorkloadPattern | None = None
    """Running in a cluster, these are the other one, also where helm did not install it."""
    is_block: bool = True
    unless: tuple[Clause, ...] = ()
    """Of this component's values: one that holds settles it."""
    unless_other: tuple[Clause, ...] = ()
    """Of the other component's values."""
    sources: tuple[Citation, ...] = ()

    def applies(self, values: Mapping[str, Any], of_other: Mapping[str, Any]) -> bool:
        settled = any(c.holds(values) for c in self.unless) or any(c.holds(of_other) for c in self.unless_other)
        return not settled


def full_name(release: str, chart: str, values: Mapping[str, Any]) -> str:
    """Return the name of a release's objects, by the convention of `helm create`."""
    name = str(values.get("nameOverride") or chart)
    return str(values.get("fullnameOverride") or (release if name in release else f"{release}-{name}"))


@dataclass(frozen=True, slots=True)
class ReleasePlace:
    """Place and names of a release, for which placeholders of the catalog stand."""

    release: str
    namespace: str
    fullname: str
    """By the convention of `helm create`: the release's name, with the chart's behind it where it is not part of it."""

    def filled(self, text: str) -> str:
        """Return the text with these in place of its placeholders; `{fullname:26}` is cut to 26 characters."""
        text = text.replace("{release}", self.release).replace("{namespace}", self.namespace)
        return _FULLNAME.sub(lambda match: self.fullname[: int(match[1] or 63)].rstrip("-"), text)


TEST_KINDS = ("workloads", "field", "taint_absent", "allocatable", "crds")


@dataclass(frozen=True, slots=True)
class ReadinessTest:
    """One thing that must be so before the component is called ready. `what` is of the kind's own words:

    workloads     {namespace, kind?, names? or selector?}   every one has all its pods ready
    field         {apiVersion, kind, name, namespace?, path, equals, reads}   on that many looks in a row
    taint_absent  {key}   on no node
    allocatable   {resource, nodes: label selector, at_least}   on every node that the selector finds
    crds          {names}   established
    """

    __test__ = False  # pytest: no test of ours

    kind: str
    what: Mapping[str, Any]
    why: str = ""
    is_optional: bool = False
    """Passes where the object it speaks of does not exist."""
    unless: tuple[Clause, ...] = ()
    """Not asked where one of these holds of the values."""

    def applies(self, values: Mapping[str, Any]) -> bool:
        return not any(clause.holds(values) for clause in self.unless)

    def of_release(self, place: ReleasePlace) -> ReadinessTest:
        """Return a copy with the release's own words for `{release}`, `{namespace}` and `{fullname}`."""
        return ReadinessTest(self.kind, _filled(self.what, place), self.why, self.is_optional, self.unless)


@dataclass(frozen=True, slots=True)
class Hazard:
    """Caveat of an upgrade, of a removal, or of every day. Ranges of chart versions (`<26.7.0`) are empty for all."""

    text: str
    sources: tuple[Citation, ...]
    before: str = ""
    """Of an upgrade: the version that it begins with."""
    after: str = ""
    """Of an upgrade: the version that it leads to."""
    of: str = ""
    """Of a removal, or of what runs: the version that is there."""

    @property
    def since(self) -> str:
        """Versions that it speaks of, in words; empty: all."""
        ways = (("from", self.before), ("to", self.after), ("of", self.of))
        return " ".join(f"{word} {range_text(versions)}" for word, versions in ways if versions)

    def applies(self, before: str, after: str) -> bool:
        """Return whether it speaks of a step between these versions, or of one that is there (both the same)."""
        return is_within(before, self.before) and is_within(after, self.after) and is_within(before, self.of)


USES = ("gpu-pods", "objects", "no-daemonset")


@dataclass(frozen=True, slots=True)
class ComponentUse:
    """Evidence that a component is still needed when it is to be removed."""

    of: str
    """gpu-pods: pods hold GPUs; objects: there are some of one of these definitions; no-daemonset: none of these runs
    in its place."""
    why: str
    names: tuple[str, ...] = ()
    is_block: bool = False
    """Whether its removal is refused meanwhile; else the plan only warns."""
    sources: tuple[Citation, ...] = ()


@dataclass(frozen=True, slots=True)
class Example:
    """An object that belongs beside the component: a profile's `policies:` may begin with a copy of it."""

    title: str
    why: str
    body: Mapping[str, Any]
    ask: tuple[str, ...] = ()
    """What a person must replace before it means anything."""
    sources: tuple[Citation, ...] = ()


DISRUPTIONS = {
    "live": "Running pods notice nothing.",
    "restarts-daemonset": "A DaemonSet restarts on its nodes; running pods keep running.",
    "scheduling": "Pods that are created meanwhile wait; running pods keep running.",
    "network": "The pods' network: connections may break, and new pods wait.",
    "gpu-pods": "Pods that use GPUs may be evicted, node by node.",
}
"""Effects of a change to the component on work in the cluster, from the mildest."""

UNTESTED_DISRUPTION = "This site's own entry is untested: anything may stop, up to a restart of every node."

POD_SECURITY = ("privileged", "baseline", "restricted")


@dataclass(frozen=True, slots=True)
class Component:
    name: str
    title: str
    summary: str
    documentation: str
    chart: ChartReference
    versions: tuple[Tested, ...]
    """The newest first."""
    namespace: str
    pod_security: str
    disruption: str
    values: Mapping[str, Any] = field(default_factory=dict)
    """Under every preset: where the chart's own default is not what this product recommends."""
    values_why: str = ""
    requires: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    conflicts: tuple[ComponentConflict, ...] = ()
    replaces: tuple[Replacement, ...] = ()
    presets: Mapping[str, Preset] = field(default_factory=dict)
    decisions: tuple[Decision, ...] = ()
    readiness: tuple[ReadinessTest, ...] = ()
    upgrades: Upgrades = field(default_factory=Upgrades)
    upgrade_hazards: tuple[Hazard, ...] = ()
    removal_hazards: tuple[Hazard, ...] = ()
    running_hazards: tuple[Hazard, ...] = ()
    uses: tuple[ComponentUse, ...] = ()
    crds: tuple[str, ...] = ()
    crds_stay: bool = True
    """Whether an uninstall leaves its CRDs, and so the objects of their kinds."""
    effects: ComponentEffects = UNCLASSIFIED
    """How its changes touch running work."""
    examples: tuple[Example, ...] = ()
    usual: Mapping[str, str] = field(default_factory=dict)
    """Values that people set most, by path: what each is for."""
    open_paths: tuple[str, ...] = ()
    """Below these any key goes: subcharts, configuration that the chart hands on."""
    also_known: tuple[str, ...] = ()
    """Keys that the chart's templates read though its values.yaml has them in a comment only, or not at all."""
    texts: Mapping[str, str] = field(default_factory=dict)
    """By path: values that are a whole configuration as YAML text, and the chart's own text (`text_values`)."""
    no_effect: Mapping[str, str] = field(default_factory=dict)
    """Keys that people still pass and that do nothing any more: why."""
    entry: str = ""
    """SHA-256 of the site's own entry that describes it; empty: it comes with Setpoint."""
    is_untested: bool = False
    """Of a site's own entry that no one but its authors has read: its effects count as the strictest."""

    @property
    def newest(self) -> str:
        return self.versions[0].version

    def tested(self, version: str) -> Tested | None:
        return next((known for known in self.versions if same_version(known.version, version)), None)

    def needs(self, presets: Iterable[str]) -> tuple[str, ...]:
        """Components that must be there first, with these presets."""
        extra = (name for preset in presets if preset in self.presets for name in self.presets[preset].requires)
        return tuple(dict.fromkeys((*self.requires, *extra)))

    def caveats(self, action: str, before: str, after: str) -> tuple[str, ...]:
        """Return what its makers warn of: before a removal, of a first install, else of a step between versions."""
        of_action = {"remove": self.removal_hazards, "install": self.running_hazards}
        hazards = of_action.get(action, self.upgrade_hazards)
        return tuple(hazard.text for hazard in hazards if hazard.applies(before or after, after or before))

    def open_decisions(self, presets: Iterable[str], values: Mapping[str, Any]) -> list[Decision]:
        chosen = tuple(presets)
        return [decision for decision in self.decisions if decision.is_open(chosen, values)]

    def place(self, release: str = "", values: Mapping[str, Any] | None = None, namespace: str = "") -> ReleasePlace:
        """Return where a release is; of its own name, in its own namespace, where none is given."""
        release = release or self.name
        full = full_name(release, self.chart.chart.rpartition("/")[2], values or {})
        return ReleasePlace(release, namespace or self.namespace, full)

    def tests(self, release: str, values: Mapping[str, Any], namespace: str = "") -> list[ReadinessTest]:
        """List the tests that must pass for this release with these values."""
        place = self.place(release, values, namespace)
        return [test.of_release(place) for test in self.readiness if test.applies(values)]

    @property
    def disruption_text(self) -> str:
        return UNTESTED_DISRUPTION if self.is_untested else DISRUPTIONS[self.disruption]

    def of_site(self, sha256: str, *, is_untested: bool) -> Component:
        """Return it as the site's own; untested, with the strictest effects, also where its entry says otherwise."""
        own = replace(self, entry=sha256, is_untested=is_untested)
        return replace(own, effects=UNTESTED, disruption=[*DISRUPTIONS][-1]) if is_untested else own

    def __str__(self) -> str:
        return self.title


def _filled(raw: Any, place: ReleasePlace) -> Any:
    if isinstance(raw, str):
        return place.filled(raw)
    if isinstance(raw, Mapping):
        return {key: _filled(value, place) for key, value in raw.items()}
    return [_filled(value, place) for value in raw] if isinstance(raw, list | tuple) else raw
