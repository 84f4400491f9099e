"""Draft of a profile from what a cluster runs already: read from helm's own records, matched to the catalog.

Nothing is stored and nothing in the cluster changes. What cannot be taken is reported with the reason, and a password
in plain text never travels: the draft has a reference in its place, to a Secret that an operator has to create.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from accounts.models import User
from accounts.permissions import Role, require
from clusters import objects
from clusters.connection import registry
from clusters.fleet import FleetError, FleetRefused, Forbidden, Untrusted
from clusters.kube import discovery
from clusters.kube.apiserver import ApiServer, Call
from clusters.kube.discovery import ServedApis
from clusters.models import Cluster
from common.clock import now
from common.errors import WrongState
from common.secret_names import looks_secret
from components.catalog import catalog, presentation, values_check
from components.catalog.entry import Component
from components.catalog.layering import layered, leaves
from components.helm import releases, rendering
from components.helm.errors import HelmError
from components.helm.releases import Release, ReleaseRevision
from components.importer import preset_match
from components.plans import gitops
from components.values import secrets
from components.values.paths import at, dotted

LOOKED_AT = 3
"""Objects of a release that are asked who keeps them; workloads first."""
_WORKLOADS = ("Deployment", "DaemonSet", "StatefulSet")


@dataclass(frozen=True, slots=True)
class ImportedRelease:
    """One release, and what becomes of it."""

    namespace: str
    release: str
    chart: str
    version: str
    component: str = ""
    """Of the catalog; empty: none."""
    values: Mapping[str, Any] | None = None
    """What it was given and the chart does not say itself; secrets are references. None: it is not taken."""
    presets: tuple[str, ...] = ()
    """Of the catalog, which say part of what it was given: `values` is the rest."""
    keys: Mapping[str, str] = field(default_factory=dict)
    """Of values that are passwords in plain text there, by path: the key of the Secret that has to be made for each."""
    notes: tuple[str, ...] = ()
    """What to know of one that is taken."""
    why_not: str = ""

    @property
    def is_taken(self) -> bool:
        return self.values is not None


@dataclass(frozen=True, slots=True)
class ProfileDraft:
    found: Sequence[ImportedRelease]
    """Those that are taken first."""
    source: str
    """The profile as YAML; empty when nothing is taken."""


def draft_profile(cluster: Cluster, *, by: User) -> ProfileDraft:
    """Asks the cluster: hold no transaction. Raises NotAllowed, WrongState (it does not answer, or refuses)."""
    require(by, Role.OPERATOR, cluster.scopes, f"read what helm installed in {cluster}")
    try:
        with registry.api_server(cluster) as server:
            served = discovery.read(server)
            imported = [_of_revision(server, served, revision) for revision in releases.newest(server)]
    except FleetError as error:
        raise WrongState(f"{cluster} could not be read: {error}.") from error
    imported = list(_once_each(imported))
    taken = [release for release in imported if release.is_taken]
    source = _source(cluster, taken, [release for release in imported if not release.is_taken]) if taken else ""
    return ProfileDraft(
        sorted(imported, key=lambda release: (not release.is_taken, release.component or "~", release.release)), source
    )


def _of_revision(server: ApiServer, served: ServedApis, revision: ReleaseRevision) -> ImportedRelease:
    meta = objects.meta(revision.raw)
    place = _one_line(str(meta.get("namespace"))), _one_line(str(revision.labels.get("name")))
    try:
        release = revision.read()
    except Untrusted as error:
        return ImportedRelease(*place, "?", "", why_not=f"{_one_line(str(error))}.")
    chart, version = _one_line(release.chart), _one_line(release.chart_version)
    start = ImportedRelease(*place, chart, version)
    component = next(iter(catalog.of_chart(release.chart)), None)
    if component is None:
        return _left(start, f"The catalog has no component of the chart {chart or '?'}.")
    start = ImportedRelease(*place, chart, version, component.name)
    if revision.is_pending:
        return _left(
            start, f"Revision {revision.number} is {revision.status}: another helm works on it, or was killed."
        )
    if not _is_unicode(release.values):
        return _left(start, "Its values cannot be taken: they hold text that is no Unicode.")
    if wrong := next(values_check.limits(release.values), None):
        return _left(start, f"Its values cannot be taken: {wrong.path or 'they'}: {wrong.message}.")
    if who := gitops.manager(_live(server, served, release)):
        return _left(start, f"It is kept by {who.owner}, which would put back what is changed beside it.")
    return _taken(start, component, release)


def _is_unicode(given: Mapping[str, Any]) -> bool:
    try:
        json.dumps(given, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half of a surrogate pair, which JSON can express and no store can hold
        return False
    return True


def _left(start: ImportedRelease, why: str) -> ImportedRelease:
    return ImportedRelease(start.namespace, start.release, start.chart, start.version, start.component, why_not=why)


def _live(server: ApiServer, served: ServedApis, release: Release) -> Iterator[Mapping[str, Any]]:
    """Some of its objects: as helm recorded them, then as they are. A GitOps tool marks all of a release."""
    try:
        manifest = [raw for raw, _ in rendering.split(release.manifest.encode())]
    except HelmError:
        return
    yield from manifest
    manifest.sort(key=lambda raw: raw.get("kind") not in _WORKLOADS)
    for raw in manifest[:LOOKED_AT]:
        resource = served.find(str(raw.get("apiVersion")), str(raw.get("kind")))
        meta = objects.meta(raw)
        name, namespace = str(meta.get("name")), str(meta.get("namespace") or release.namespace)
        if resource is None:
            continue
        try:
            call = Call("get", resource.plural, name)
            yield server.get(call, resource.path(namespace if resource.is_namespaced else "", name))
        except Forbidden:
            raise
        except FleetRefused:  # gone since, or under a name that is none
            continue


# ── Values ────────────────────────────────────────────────────────────────────────────────────────────────────────────
def _taken(start: ImportedRelease, component: Component, release: Release) -> ImportedRelease:
    keys: dict[str, str] = {}
    presets, rest = preset_match.presets_in(component, release.values, release.defaults)
    own = _without_secrets(rest, f"{release.name}-values", "", keys)
    notes = []
    if presets:
        presets_text = f"the preset {presets[0]}" if len(presets) == 1 else f"the presets {', '.join(presets)}"
        notes.append(f"Among its values is all of {presets_text}.")
    if component.tested(release.chart_version) is None:
        known = ", ".join(tested.version for tested in component.versions)
        notes.append(f"The presets were checked against {known}, not against {release.chart_version}.")
    if release.status != releases.DEPLOYED:
        notes.append(f"Its newest revision is {release.status}.")
    if (release.name, release.namespace) != (component.name, component.namespace):
        notes.append(f"It stays the release {release.namespace}/{release.name}.")
    effective = values_check.coalesced(release.values, release.defaults)
    base = layered(component, presets=presets).values
    adds = [dotted(path) for path in leaves(base) if not preset_match.says(effective, path, at(base, path))]
    adds = [path for path in adds if not _mentions(own, path)]
    if adds:
        notes.append(f"The catalog sets besides: {', '.join(adds)}.")
    return replace(start, component=component.name, values=own, presets=presets, keys=keys, notes=tuple(notes))


def _mentions(given: Mapping[str, Any], path: str) -> bool:
    return any(dotted(known) == path for known in leaves(given))


def _without_secrets(value: Any, secret: str, path: str, keys: dict[str, str]) -> Any:
    """The same with a reference for each plain text that looks like a secret; `keys` learns its path and its key."""
    if isinstance(value, Mapping):
        out = {}
        for key, inner in value.items():
            step = dotted((key,))
            below = f"{path}{'' if step.startswith('[') or not path else '.'}{step}"
            if looks_secret(key, inner):
                keys[below] = _key(str(key), below, keys.values())
                out[key] = {secrets.REFERENCE: {"name": secret, "key": keys[below]}}
            else:
                out[key] = _without_secrets(inner, secret, below, keys)
        return out
    if isinstance(value, list | tuple):
        return [_without_secrets(inner, secret, f"{path}[{index}]", keys) for index, inner in enumerate(value)]
    return value


def _key(name: str, path: str, taken: Collection[str]) -> str:
    """Name a Secret's key after its value; where another has the same name, after its whole path."""
    name, path = (re.sub(r"[^-._a-zA-Z0-9]+", "-", text).strip("-")[:240] for text in (name, path))
    numbered = (f"{path}-{number}" for number in itertools.count(2))
    return next(key for key in itertools.chain((name, path), numbered) if key and key not in taken)


# ── The draft ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def _once_each(imported: Sequence[ImportedRelease]) -> Iterator[ImportedRelease]:
    """A cluster has one release of a component; where it has more, a person must say which."""
    for release in imported:
        same = [
            f"{other.namespace}/{other.release}"
            for other in imported
            if release.is_taken and other.component == release.component
        ]
        if len(same) > 1:
            yield _left(release, f"The cluster has several releases of it: {', '.join(same)}. Remove all but one.")
        else:
            yield release


def _source(cluster: Cluster, taken: Sequence[ImportedRelease], left: Sequence[ImportedRelease]) -> str:
    lines = [f"What helm had installed in {cluster} on {now():%Y-%m-%d}, taken over as it was."]
    lines += [f"Left out: {release.namespace}/{release.release}. {release.why_not}" for release in left]
    for release in taken:
        place = f"{release.namespace}/{release.release}-values"
        lines += [
            f"To do: make the Secret {place} with the key {key}, for {path}." for path, key in release.keys.items()
        ]
    wanted: dict[str, Any] = {}
    by_name = {release.component: release for release in taken}
    for name in catalog.order(by_name):
        wanted[name] = {"version": by_name[name].version}
        if presets := by_name[name].presets:
            wanted[name]["presets"] = list(presets)
        if own := by_name[name].values:
            wanted[name]["values"] = dict(own)
    return "".join(f"# {_one_line(text)}\n" for text in lines) + presentation.as_yaml({"components": wanted})


def _one_line(text: str) -> str:
    """Return the text as one line: a comment must end where its line does, for any record of a cluster."""
    return "".join(c if c.isprintable() else "?" for c in " ".join(text.split()))[:300]
