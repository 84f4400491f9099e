from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from django.apps import AppConfig


@dataclass(frozen=True, slots=True)
class AuditReader:
    everything: bool
    has_role: bool
    clusters: Iterable[UUID]
    name: str


class ConfigConfig(AppConfig):
    """Top room: settings, URLs, the commands that start processes."""

    name = "config"

    def ready(self) -> None:
        from accounts.permissions import restrict, visible_scopes
        from audit.selectors import readers
        from clusters.models import Cluster

        def reader_of(user: Any) -> AuditReader:
            clusters = restrict(Cluster.objects.order_by(), user, "").values_list("pk", flat=True)
            scopes = visible_scopes(user)
            return AuditReader("*" in scopes, bool(scopes), clusters, str(user))

        readers.reader_of = reader_of
