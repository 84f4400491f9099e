"""A component's chart rendered for a plan: with a stand-in for each secret to approve, with the secrets to compare."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from clusters import objects
from clusters.connection import registry
from clusters.fleet import NotFound
from clusters.kube import discovery
from clusters.kube.apiserver import ApiServer, Call
from clusters.kube.discovery import ServedApis
from clusters.models import Cluster
from components.catalog import values_check
from components.helm import client, rendering
from components.helm.client import HelmJob, HelmRefused
from components.helm.rendering import Rendered
from components.plans.prepared import BLOCK, NOT_LOOKED_UP, WARN, PlanNote
from components.release.location import ReleaseLocation

SECONDS = 180.0
"""For everything: fetching, three renderings, and two calls for each object."""
_BLIND = PlanNote(
    WARN,
    NOT_LOOKED_UP,
    "What the chart looks up in the cluster while it renders counts as absent here",
    "helm v4 asks only where the chart's own definitions are there and the identity that plans may read every object "
    "of the chart. Where the cluster has such objects already (a password to keep, a namespace), what is installed can "
    "differ; helm v3 can ask, or apply the definitions first.",
)


class SecretMissing(HelmRefused):
    """A value refers to a key of a Secret that is not in the release's namespace."""


def secret_reader(server: ApiServer, namespace: str, seen: list[str]) -> Callable[[str, str], str]:
    """Answers the text of a key of a Secret, and remembers it in `seen`, so that it can be masked everywhere."""

    def look(name: str, key: str) -> str:
        path = f"/api/v1/namespaces/{discovery.segment(namespace)}/secrets/{discovery.segment(name)}"
        try:
            data = server.get(Call("get", "secrets", name), path, "Secret").get("data") or {}
        except NotFound:
            data = {}
        text = objects.decoded(data.get(key))
        if text is None:
            raise SecretMissing(f"the Secret {namespace}/{name} has no key {key!r}, to which the values refer")
        seen.append(text)
        return text

    return look


@dataclass(frozen=True, slots=True)
class RenderedComponent:
    rendered: Rendered
    """With a stand-in for each secret: what is approved does not change when a password does."""
    real: Rendered
    given: Mapping[str, Any]
    """The values with their secrets: for comparing, never for keeping."""
    secrets: tuple[str, ...]
    notes: list[PlanNote]


@dataclass(frozen=True, slots=True)
class ComponentRendering:
    cluster: Cluster
    program: client.Helm
    server: ApiServer
    served: ServedApis
    place: ReleaseLocation
    content: bytes
    wishes: Mapping[str, Any]

    def render(self) -> RenderedComponent:
        job = HelmJob(
            self.place.release,
            self.place.namespace,
            credentials=registry.credentials(self.cluster),
            deadline=time.monotonic() + SECONDS,
        )
        how: dict[str, Any] = {
            "kube_version": self.served.version,
            "api_versions": self.served.api_versions,
            "is_upgrade": self.place.current is not None,
        }
        rendered = rendering.render(self.program, job, self.content, stand_ins(self.wishes), **how)
        notes = [_BLIND] if rendered.is_blind else []
        if not values_check.secrets(self.wishes):
            return RenderedComponent(rendered, rendered, self.wishes, (), notes)
        seen: list[str] = []
        try:
            given = values_check.resolved(self.wishes, secret_reader(self.server, self.place.namespace, seen))
        except SecretMissing as error:
            return RenderedComponent(
                rendered, rendered, self.wishes, (), [*notes, PlanNote(BLOCK, "secret-missing", str(error))]
            )
        job = HelmJob(job.release, job.namespace, job.credentials, job.deadline, secrets=tuple(seen))
        again = {**how, "masked": rendered.masked, "is_blind": rendered.is_blind}
        real = rendering.again(self.program, job, self.content, given, **again)
        return RenderedComponent(rendered, real, given, tuple(seen), notes)


def stand_ins(wishes: Mapping[str, Any]) -> Mapping[str, Any]:
    """The values with a text in each secret's place that tells which it is, and nothing of it."""
    values: Mapping[str, Any] = values_check.resolved(wishes, lambda name, key: f"secret {name}/{key}")
    return values
