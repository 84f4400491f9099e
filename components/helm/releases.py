"""helm's own records in a cluster, read from their Secrets and never trusted further than that.

helm keeps one Secret a revision (`sh.helm.release.v1.<release>.v<n>`): JSON, gzipped, in base64, in base64. Reading
them costs one call and no process. Three things are written: `mend` records a revision that a killed helm left pending
as failed, `record_also` adds definitions that were made for helm, and `label` adds labels.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from clusters import objects
from clusters.fleet import Untrusted
from clusters.kube import paging
from clusters.kube.apiserver import MERGE, ApiServer, Call
from clusters.kube.discovery import segment
from common.clock import now

MAX_PACKED = 3 * 1024 * 1024
"""Bytes of one record; etcd takes 1.5 MB."""
PAGE = 40
"""Records a page: at 1.5 MB each, the most that etcd takes, a page still fits into one answer."""
MAX_UNPACKED = 64 * 1024 * 1024
_CRD = re.compile(r"crds/.+\.(?:ya?ml|json)")
DEPLOYED, FAILED, UNINSTALLED, SUPERSEDED = "deployed", "failed", "uninstalled", "superseded"
PENDING = frozenset(("pending-install", "pending-upgrade", "pending-rollback", "uninstalling"))


class BadRecord(Untrusted):
    """A record that helm did not write so: it is there, and reading it again changes nothing."""

    is_final = True


@dataclass(frozen=True, slots=True)
class Release:
    """One revision as helm recorded it."""

    name: str
    namespace: str
    revision: int
    status: str
    chart: str
    chart_version: str
    app_version: str
    values: Mapping[str, Any] = field(repr=False)
    """What helm was given, without the chart's defaults. May hold secrets: never for a page, a log or a row."""
    manifest: str = field(repr=False)
    updated: str
    description: str
    is_server_side: bool
    """helm v4 applied it server-side; the next upgrade will, too."""
    defaults: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """The chart's own values."""
    hooks: tuple[str, ...] = field(default=(), repr=False)
    """The manifest of each hook."""
    removal_hooks: tuple[str, ...] = ()
    """What helm runs before and after an uninstall: `Job prune (post-delete)`."""


@dataclass(frozen=True, slots=True)
class ReleaseRevision:
    """One record, not opened yet."""

    raw: Mapping[str, Any] = field(repr=False)
    is_abandoned: bool = False
    """The newest of its release, and recorded as superseded.

    An install over a removed or failed release marks that one first and records its own behind: a helm that is killed
    in between leaves this, and no helm installs such a release any more ("cannot reuse a name").
    """

    @property
    def labels(self) -> Mapping[str, str]:
        return objects.meta(self.raw).get("labels") or {}

    @property
    def number(self) -> int:
        text = str(self.labels.get("version"))
        return int(text) if text.isdigit() and len(text) < 10 else 0

    @property
    def status(self) -> str:
        """Recorded status; of an abandoned revision, the status it had before it was marked."""
        if self.is_abandoned:
            return UNINSTALLED if _mapping(_opened(self.raw), "info").get("deleted") else FAILED
        return str(self.labels.get("status") or "unknown")

    @property
    def is_pending(self) -> bool:
        return self.status in PENDING

    def crds(self) -> list[bytes]:
        """Each file of the chart's own `crds/`; helm records none of subcharts. Raises BadRecord."""
        files = _mapping(_opened(self.raw), "chart").get("files")
        named = [file for file in files if isinstance(file, dict)] if isinstance(files, list) else []
        return [_file(file) for file in named if _CRD.fullmatch(str(file.get("name")))]

    def read(self) -> Release:
        """Raises BadRecord."""
        payload = _opened(self.raw)
        info, chart = _mapping(payload, "info"), _mapping(_mapping(payload, "chart"), "metadata")
        values, defaults = payload.get("config"), _mapping(payload, "chart").get("values")
        return Release(
            name=str(payload.get("name")),
            namespace=str(payload.get("namespace")),
            revision=self.number,
            status=self.status if self.is_abandoned else str(info.get("status") or self.status),
            chart=str(chart.get("name") or ""),
            chart_version=str(chart.get("version") or ""),
            app_version=str(chart.get("appVersion") or ""),
            values=values if isinstance(values, dict) else {},
            manifest=str(payload.get("manifest") or ""),
            updated=str(info.get("last_deployed") or ""),
            description=str(info.get("description") or "")[:500],
            is_server_side=payload.get("apply_method") == "ssa",
            defaults=defaults if isinstance(defaults, dict) else {},
            hooks=tuple(str(hook.get("manifest") or "") for hook in _hooks(payload)),
            removal_hooks=tuple(_removal_hooks(_hooks(payload))),
        )


@dataclass(frozen=True, slots=True)
class ReleaseHistory:
    revisions: Sequence[ReleaseRevision]
    """Oldest first."""

    @property
    def last(self) -> ReleaseRevision | None:
        return self.revisions[-1] if self.revisions else None

    @property
    def deployed(self) -> ReleaseRevision | None:
        """The newest that is in force; none once the newest of all is removed.

        A removal marks that one alone: what stood before a failed upgrade is still recorded as deployed.
        """
        if self.last is not None and self.last.status == UNINSTALLED:
            return None
        return next((revision for revision in reversed(self.revisions) if revision.status == DEPLOYED), None)

    def numbered(self, number: int) -> ReleaseRevision | None:
        return next((revision for revision in self.revisions if revision.number == number), None)


def history(server: ApiServer, namespace: str, release: str) -> ReleaseHistory:
    """Empty when there is no such release. Raises FleetError."""
    path = f"/api/v1/namespaces/{segment(namespace)}/secrets"
    revisions = [ReleaseRevision(raw) for raw in _records(server, path, f"owner=helm,name={segment(release)}")]
    numbered = sorted((revision for revision in revisions if revision.number), key=lambda revision: revision.number)
    if numbered:
        numbered[-1] = _judged(numbered[-1])
    return ReleaseHistory(numbered)


def find(server: ApiServer, chart: str) -> list[tuple[str, str]]:
    """Namespace and name of every release in the cluster whose newest revision is of this chart. Raises FleetError."""
    newest_by_key: dict[tuple[str, str], ReleaseRevision] = {}

    def take(raw: dict[str, Any]) -> None:  # page by page: all records of a cluster may be hundreds of megabytes
        revision = ReleaseRevision(raw)
        key = _key(revision)
        if revision.number > (newest_by_key[key].number if key in newest_by_key else 0):
            newest_by_key[key] = revision

    _records(server, "/api/v1/secrets", "owner=helm", keep=take)
    newest_ones = {key: _judged(revision) for key, revision in newest_by_key.items()}
    return sorted(
        key
        for key, revision in newest_ones.items()
        if revision.status != UNINSTALLED and revision.read().chart == chart
    )


def newest(server: ApiServer) -> list[ReleaseRevision]:
    """Return for every release in the cluster the revision in force, else the newest. Raises FleetError."""
    in_force: dict[tuple[str, str], ReleaseRevision] = {}
    removed: dict[tuple[str, str], int] = {}
    there = [ReleaseRevision(raw) for raw in _records(server, "/api/v1/secrets", "owner=helm,status!=superseded")]
    for revision in there:
        if revision.status == UNINSTALLED:
            removed[_key(revision)] = max(revision.number, removed.get(_key(revision), 0))
    for revision in there:
        key = _key(revision)
        if revision.number > removed.get(key, 0) and (key not in in_force or _rank(revision) > _rank(in_force[key])):
            in_force[key] = revision
    return [in_force[key] for key in sorted(in_force)]


def _judged(newest: ReleaseRevision) -> ReleaseRevision:
    return replace(newest, is_abandoned=True) if newest.status == SUPERSEDED else newest


def _key(revision: ReleaseRevision) -> tuple[str, str]:
    return str(objects.meta(revision.raw).get("namespace")), str(revision.labels.get("name"))


def _rank(revision: ReleaseRevision) -> tuple[bool, int]:
    """Return the sort key of a revision: pending or in force first, then the newer.

    A release that is being worked on is pending, also beside one in force.
    """
    return revision.is_pending or revision.status == DEPLOYED, revision.number


def _records(
    server: ApiServer, path: str, selector: str, *, keep: Callable[[dict[str, Any]], Any] = dict
) -> list[dict[str, Any]]:
    query = {"labelSelector": selector}
    return paging.listed(server, Call("list", "secrets"), path, query=query, limit=PAGE, keep=keep).items


def mend(server: ApiServer, revision: ReleaseRevision, why: str, status: str = FAILED) -> None:
    """Record a pending revision as failed, or an abandoned one as it was, at the version that was read.

    Nothing of the release's objects is touched, so nothing is lost: the next upgrade or rollback compares with what
    this revision had begun. Raises Conflict when another helm wrote meanwhile, FleetError.
    """
    payload = _opened(revision.raw)
    payload["info"] = {**_mapping(payload, "info"), "status": status, "description": why[:500]}
    _write(server, revision, payload, {"status": status, "modifiedAt": str(int(now().timestamp()))})


def record_also(server: ApiServer, revision: ReleaseRevision, more: Sequence[Mapping[str, Any]]) -> None:
    """Add objects to a revision's manifest. Raises Conflict when another helm wrote meanwhile, FleetError."""
    payload = _opened(revision.raw)
    parts = [str(payload.get("manifest") or "").rstrip(), *(f"---\n{json.dumps(raw)}" for raw in more), ""]
    _write(server, revision, {**payload, "manifest": "\n".join(parts)})


def label(server: ApiServer, revision: ReleaseRevision, labels: Mapping[str, str]) -> None:
    """Add labels to a revision's record; helm keeps them. Raises FleetError."""
    server.ask(*_patch(revision), body={"metadata": {"labels": dict(labels)}}, content_type=MERGE)


def _write(
    server: ApiServer, revision: ReleaseRevision, payload: Mapping[str, Any], labels: Mapping[str, str] | None = None
) -> None:
    meta = objects.meta(revision.raw)
    change = {
        "metadata": {"resourceVersion": meta.get("resourceVersion"), "labels": dict(labels or {})},
        "data": {"release": _packed(payload)},
    }
    server.ask(*_patch(revision), body=change, content_type=MERGE)


def _patch(revision: ReleaseRevision) -> tuple[Call, str, str]:
    meta = objects.meta(revision.raw)
    name, namespace = segment(str(meta.get("name"))), segment(str(meta.get("namespace")))
    return Call("patch", "secrets", f"{namespace}/{name}"), "PATCH", f"/api/v1/namespaces/{namespace}/secrets/{name}"


def _opened(raw: Mapping[str, Any]) -> dict[str, Any]:
    name = objects.meta(raw).get("name")
    try:
        packed = base64.b64decode(base64.b64decode(str((raw.get("data") or {})["release"]), validate=True))
        if len(packed) > MAX_PACKED:
            raise ValueError("is too long")
        if packed[:2] == b"\x1f\x8b":
            unzip = zlib.decompressobj(wbits=31)
            packed = unzip.decompress(packed, MAX_UNPACKED)
            if unzip.unconsumed_tail:
                raise ValueError("unpacks to too much")
        record = json.loads(packed)
        if not isinstance(record, dict):
            raise ValueError("is no object")
    except (KeyError, ValueError, binascii.Error, zlib.error, RecursionError) as error:
        raise BadRecord(f"helm's record {name} cannot be read: {error}") from error
    return record


def _packed(payload: Mapping[str, Any]) -> str:
    zipped = zlib.compressobj(9, wbits=31)
    data = zipped.compress(json.dumps(payload, separators=(",", ":")).encode()) + zipped.flush()
    return base64.b64encode(base64.b64encode(data)).decode()


def _hooks(payload: Mapping[str, Any]) -> list[dict[str, Any]]:
    hooks = payload.get("hooks")
    return [hook for hook in hooks if isinstance(hook, dict)] if isinstance(hooks, list) else []


def _removal_hooks(hooks: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    for hook in hooks:
        events = hook.get("events")
        for event in events if isinstance(events, list) else ():
            if event in ("pre-delete", "post-delete"):
                yield f"{str(hook.get('kind'))[:60]} {str(hook.get('name'))[:60]} ({event})"


def _file(raw: Mapping[str, Any]) -> bytes:
    try:
        return base64.b64decode(str(raw.get("data") or ""), validate=True)
    except (ValueError, binascii.Error) as error:
        raise BadRecord(f"helm's record has a file that cannot be read: {str(raw.get('name'))[:80]}") from error


def _mapping(raw: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = raw.get(key)
    return value if isinstance(value, dict) else {}
