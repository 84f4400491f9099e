"""A kind of policy object that a profile may want: a row of the table in `profiles.policies.kinds`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from profiles.policies.kubernetes import Judge


@dataclass(frozen=True, slots=True)
class PolicyKind:
    name: str
    versions: tuple[str, ...]
    """apiVersions that are understood, the one to write first."""
    is_namespaced: bool
    fields: frozenset[str]
    """Fields allowed beside apiVersion, kind and metadata."""
    check: Callable[[Judge, Mapping[str, Any]], None]
    component: str = ""
    """Which brings the kind's definition; empty: Kubernetes itself."""
    also: tuple[str, ...] = ()
    """Other components that bring it."""
    fixed: tuple[str, ...] = ()
    """Paths that Kubernetes never changes once the object exists: another value needs another object."""
    is_kept_out: bool = False
    """Of no namespace of Kubernetes or of Setpoint itself."""

    @property
    def components(self) -> tuple[str, ...]:
        return (self.component, *self.also) if self.component else ()
