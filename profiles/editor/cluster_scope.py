"""Components and policy objects as pages show them: one row each, what they hold folded away as YAML."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from profiles.content.content import Content, WantedComponent, WantedObject
from profiles.document.document import dump

TOLD = 3
"""Fields of an object that its row tells; all of them are in its YAML."""


@dataclass(frozen=True, slots=True)
class ComponentRow:
    wanted: WantedComponent
    is_inherited: bool

    @property
    def count(self) -> int:
        return sum(name.startswith(f"{self.wanted.name}.values") for name in self.wanted.facts)

    @property
    def yaml(self) -> str:
        return dump(dict(self.wanted.values), sort_keys=True)


@dataclass(frozen=True, slots=True)
class ObjectRow:
    wanted: WantedObject
    is_inherited: bool

    @property
    def first_facts(self) -> list[tuple[str, str]]:
        """(field, value) of its first few, without what all of them share; prose comes last."""
        start = len(self.wanted.title) + 1
        facts = [(name[start:], fact) for name, fact in list(self.wanted.facts.items())[1:]]
        facts.sort(key=lambda fact: fact[0] == "description")
        return [(name.removeprefix("spec.").removeprefix("metadata."), fact.strip('"')) for name, fact in facts[:TOLD]]

    @property
    def untold(self) -> int:
        return max(0, len(self.wanted.facts) - 1 - TOLD)

    @property
    def yaml(self) -> str:
        return dump(self.wanted.manifest)


@dataclass(frozen=True, slots=True)
class ClusterPart:
    components: Sequence[ComponentRow]
    objects: Sequence[ObjectRow]


def part(content: Content, own: str) -> ClusterPart | None:
    """Return what it wants of the cluster, or None; `own` is the name that makes a row not inherited."""
    if not content.has_cluster_part:
        return None
    return ClusterPart(
        [ComponentRow(component, component.origin != own) for component in content.components],
        [ObjectRow(policy, policy.origin != own) for policy in content.policies],
    )
