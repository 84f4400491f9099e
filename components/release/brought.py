"""Definitions that a release brought and that outlive it: those of its charts' `crds/`, and templates that are kept.

helm's manifest has none of `crds/`. Its record has the chart's own files and those of no subchart, and the stored
archive has all of them, also of subcharts that are switched off: so the archive is rendered with the recorded values.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache

from clusters.kube.discovery import ServedApis
from common.errors import Refusal
from components.charts import archives
from components.helm import client, rendering
from components.helm.client import HelmError, HelmJob, HelmRefused
from components.helm.releases import Release, ReleaseHistory, ReleaseRevision
from components.helm.rendering import Manifest
from components.models import Archive
from components.plans.impact import DEFINITION

SECONDS = 60.0


def definitions(served: ServedApis, history: ReleaseHistory, current: Release) -> set[str]:
    """Names, from every revision that helm keeps. The names in an unreadable file are missing, without a note."""
    names: set[str] = set()
    for revision in history.revisions:
        for text in revision.crds():
            names |= _names(_objects(text))
    kept = [Manifest(raw) for raw in _objects(current.manifest.encode())]
    names |= {manifest.name for manifest in kept if manifest.kind == DEFINITION and manifest.is_kept}
    stored = Archive.objects.filter(name=current.chart, version=current.chart_version)
    for sha256 in stored.values_list("pk", flat=True):
        names |= _of_archive(served, sha256, current)
    return names


def of_revision(served: ServedApis, revision: ReleaseRevision, current: Release) -> frozenset[str]:
    """Names of those in the `crds/` of one revision's charts, as its values switch subcharts on.

    Those of subcharts are missing where the archive is not stored, or does not render without the cluster.
    """
    own = {name for text in revision.crds() for name in _names(_objects(text))}
    key = f"{current.namespace}/{current.name}/{revision.number}/{current.updated}"
    stored = Archive.objects.filter(name=current.chart, version=current.chart_version).order_by("pk")
    for sha256 in stored.values_list("pk", flat=True):
        own |= _rendered(_Archived(key, sha256, served, current))
    return frozenset(own)


@dataclass(frozen=True, slots=True)
class _Archived:
    """An archive as a release has it. Equal where release, revision, archive and what the cluster serves are."""

    key: str
    sha256: str
    served: ServedApis = field(compare=False)
    current: Release = field(compare=False)


@lru_cache(maxsize=256)
def _rendered(archived: _Archived) -> frozenset[str]:
    """Rendered once for each revision: a look at a component comes every few minutes, and helm takes a second."""
    try:
        content = archives.content(archived.sha256)
        return frozenset(_names(_template(archived.served, content, archived.current)))
    except Refusal:
        return frozenset()


def _template(served: ServedApis, content: bytes, current: Release) -> list[dict[str, object]]:
    """Return the objects of `crds/`. Raises HelmError."""
    job = HelmJob(current.name, current.namespace, deadline=time.monotonic() + SECONDS)
    kube_version, api_versions = served.version, served.api_versions
    text = client.program().template(job, content, current.values, kube_version=kube_version, api_versions=api_versions)
    return [raw for raw, is_crd in rendering.split(text, content) if is_crd]


def _of_archive(served: ServedApis, sha256: str, current: Release) -> set[str]:
    """Name the definitions of an archive, rendered with the release's values.

    Where it does not render without the cluster, all that are in it.
    """
    try:
        content = archives.content(sha256)
        try:
            return _names(_template(served, content, current))
        except HelmError:
            names: set[str] = set()
            for each in archives.judge(content).crds.values():
                names |= _names(_objects(each.encode()))
            return names
    except Refusal:
        return set()


def _objects(text: bytes) -> Iterator[dict[str, object]]:
    try:
        yield from (raw for raw, _ in rendering.split(text))
    except HelmRefused:
        return


def _names(raws: Iterable[dict[str, object]]) -> set[str]:
    return {Manifest(raw).name for raw in raws if Manifest(raw).kind == DEFINITION}
