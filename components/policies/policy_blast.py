"""Effect of a group of policy objects on running work: by kind, and for a component's kinds by its catalog entry."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from components.blast import judgment
from components.blast.ground import Ground
from components.blast.judgment import GPU_PODS, NEW_PODS, Scene
from components.catalog import catalog
from components.catalog.effects import ALL_NODES, ComponentEffects, WholeEffect
from components.helm.rendering import Manifest
from components.plans.diff import Compared
from components.plans.hits import Blast, Hit
from components.policies import policy_kinds
from components.policies.policy_kinds import REFUSES
from components.policies.prepared_objects import PreparedObject
from components.values.clauses import look_up
from contract import quantities

_UNSAID = "The catalog does not know what this kind does, so the strictest is assumed."


def policies_blast(prepared: Sequence[PreparedObject], ground: Ground) -> Blast:
    return judgment.gathered(_hits([policy for policy in prepared if policy.change != "same"], ground), ground)


def _hits(changed: Iterable[PreparedObject], ground: Ground) -> Iterator[Hit]:
    for policy in changed:
        # The API server fills in what a manifest leaves out, so only what the manifest says is held against it.
        before = _like(policy.with_theirs or policy.before, policy.manifest)
        change = "changed" if policy.change == "changed" else "created"
        compared = Compared(Manifest(policy.manifest), change, policy.ref.namespace, before or None, policy.manifest)
        if change == "created" and policy_kinds.row(policy.ref.kind).is_idle_at_first:
            continue
        if policy.ref.kind == "ResourceQuota" and change == "changed":
            yield from _quota(policy, before)
            continue
        yield from Scene(_effects(policy.ref.kind), ground, own={}).hits([compared])


def _effects(kind: str) -> ComponentEffects:
    built_in, component = policy_kinds.row(kind).effects, policy_kinds.component_of(kind)
    if component and not built_in:
        return catalog.get(component).effects
    whole = WholeEffect(GPU_PODS, _UNSAID, ALL_NODES)
    return ComponentEffects(GPU_PODS, whole, whole, built_in)


def _quota(policy: PreparedObject, before: Mapping[str, Any]) -> Iterator[Hit]:
    """Lowered, or asked for the first time; what is only raised restricts nothing."""
    had, limits = (look_up(side, "spec.hard") or {} for side in (before, policy.manifest))
    lowered = tuple(
        f"{name} {had.get(name, 'without a limit')} → {amount}"
        for name, amount in sorted(limits.items())
        if name not in had or (had[name] != amount and quantities.count(amount) <= quantities.count(had[name]))
    )
    if lowered:
        why = f"Lowered: {', '.join(lowered[:4])}{' and more' if len(lowered) > 4 else ''}. {REFUSES}"
        yield Hit(policy.title, "changed", NEW_PODS, why, paths=("spec.hard",))


def _like(before: Any, manifest: Any) -> Any:
    return {key: value for key, value in before.items() if key in manifest} if isinstance(before, Mapping) else before
