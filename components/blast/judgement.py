"""Effect of a component's plan on running work, from its rendered difference and the effects that the catalog lists.

Pure: no network, no clock. The same difference over the same rows is the same blast, so that it can be approved.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import ceil
from typing import Any

from components.blast import harmless
from components.blast.ground import GpuPodOwner, Ground
from components.catalog.effects import CLASSES, ChangeEffect, ComponentEffects, Controller, WholeEffect, rank, strictest
from components.plans.diff import Compared
from components.plans.hits import Blast, Hit
from components.values.clauses import look_up

INSTALL, REMOVE, NONE = "install", "remove", "none"
LIVE, NEW_PODS, NETWORK, GPU_PODS, DRAIN = CLASSES[:5]
SHOWN_PATHS = 4
_WORKLOADS = ("DaemonSet", "Deployment", "StatefulSet")
_TEMPLATE = "spec.template"
Read = Callable[[Controller], Mapping[str, Any] | None]
"""Answers the object of a controller's settings as it is in the cluster; None: there is none, or it may not be read."""


@dataclass(frozen=True)
class Scene:
    """Everything that one difference is judged with."""

    effects: ComponentEffects
    ground: Ground
    release: str = ""
    daemons: Sequence[Mapping[str, Any]] = ()
    """DaemonSets of the release's namespace as they are: an operator makes some that no chart has."""
    read: Read = lambda controller: None
    own: Mapping[tuple[str, str], Mapping[str, Any]] = field(default_factory=dict)
    """Objects of the difference as they will be, by kind and name."""

    # ── what is hit ───────────────────────────────────────────────────────────────────────────────────────────────
    def hits(self, compared: Iterable[Compared]) -> Iterator[Hit]:
        for one in compared:
            if one.change == "changed":
                yield from self._changed(one)
            elif one.change != "same":
                yield from self._whole_object(one)

    def whole(self, whole: WholeEffect, compared: Iterable[Compared], change: str) -> Iterator[Hit]:
        """Yield the one hit of an install or removal, with the DaemonSets that come or leave on every node at once."""
        found = [one for one in compared if one.wanted.kind == "DaemonSet" and one.change != "same"]
        nodes = set(self.ground.named(whole.nodes))
        for one in found:
            if rank(self._of_daemon(one)) >= rank(NETWORK):
                nodes |= set(self.ground.running(one.result or one.live or one.wanted.raw))
        names = tuple(sorted(nodes))
        count, worst = len(names), whole.worst
        yield Hit(
            what="The release as a whole",
            change=change,
            worst=worst,
            why=whole.why,
            restarts=tuple(sorted(_name(one) for one in found)),
            nodes=names if rank(worst) >= rank(NETWORK) else (),
            count=count,
            at_once=count,
            interrupts=rank(worst) >= rank(GPU_PODS),
        )

    def _of_daemon(self, one: Compared) -> str:
        found = self.effects.of(one.wanted.kind, one.wanted.name, self.release)
        return strictest(effect.worst for effect in found) if found else self.effects.unknown

    def _changed(self, one: Compared) -> Iterator[Hit]:
        before, after = one.live or {}, one.result or {}
        paths = [path for path in differing(before, after) if counts(one.wanted.kind, path)]
        effects = self.effects.of(one.wanted.kind, one.wanted.name, self.release)
        by_effect: dict[int, list[str]] = {}
        unsaid: list[str] = []
        for path in paths:
            longest = max((effect.reach(path) for effect in effects), default=-1)
            if longest < 0:
                unsaid.append(path)
                continue
            said = [place for place, effect in enumerate(effects) if effect.reach(path) == longest]
            if best := [place for place in said if not self._is_idle(effects[place], before, after)]:
                by_effect.setdefault(max(best, key=lambda p: rank(effects[p].worst)), []).append(path)
        for place, found in sorted(by_effect.items()):
            yield self._hit(one, effects[place], tuple(found))
        if unsaid:
            yield self._unsaid(one, tuple(unsaid))

    def _whole_object(self, one: Compared) -> Iterator[Hit]:
        """Created or deleted beside others that stay."""
        raw = one.result or one.live or one.wanted.raw
        said = self.effects.of(one.wanted.kind, one.wanted.name, self.release)
        # Of what has paths, those that the object has at all.
        there = [e for e in said if not e.paths or any(look_up(raw, path) is not None for path in e.paths)]
        effects = [effect for effect in there or said if not self._is_idle(effect, raw)]
        if effects:
            yield self._hit(one, max(effects, key=lambda e: rank(e.worst)), ())
        elif not said:
            yield self._unsaid(one, ())

    def _hit(self, one: Compared, effect: ChangeEffect, paths: tuple[str, ...]) -> Hit:
        raw = one.live or one.result or one.wanted.raw
        after = one.result or raw
        daemons = [d for d in self.daemons if _of(d, "name").startswith(effect.restarts)] if effect.restarts else []
        named = tuple(sorted(f"{_of(d, 'namespace')}/{_of(d, 'name')}" for d in daemons)) or effect.restarts
        if one.wanted.kind == "DaemonSet":
            named = (_name(one),)
        nodes = self._nodes(one, effect, raw, after, daemons)
        worst, why, at_once, limit, label = effect.worst, effect.why, len(nodes), "", ""
        is_gradual = _is_gradual(one, effect)
        if is_gradual and effect.controller:
            worst, why, at_once, limit, label = self._controlled(effect, len(nodes))
        elif is_gradual and effect.at_once:
            at_once = amount(look_up(self._settings(one.wanted.kind, after), effect.at_once), len(nodes), default=1)
            limit = f"{one.wanted.kind} {one.wanted.name}, {effect.at_once}"
        elif is_gradual and one.wanted.kind == "DaemonSet":
            worst, why, at_once = _rolled(after, len(nodes), effect)
            limit = _limit(one) if at_once else ""
        return self._made(one, worst, why, paths, named, nodes, at_once, label, limit, effect.interrupts)

    def _unsaid(self, one: Compared, paths: tuple[str, ...]) -> Hit:
        """Return the hit of a change that the catalog does not list: its kind's, else the strictest plausible one."""
        kind, raw = one.wanted.kind, one.live or one.result or one.wanted.raw
        if known := harmless.known_effect(kind, one.change):
            return self._made(one, known[0], known[1], paths, (), (), 0, "", "", False)
        worst, why = self.effects.unknown, "The catalog does not know what this does, so the strictest is assumed."
        if kind == "DaemonSet":
            nodes, limit = tuple(self.ground.running(raw)), ""
            if one.change == "changed":
                worst, why, at_once = _rolled(one.result or raw, len(nodes), ChangeEffect(kind, worst, why))
                limit = _limit(one) if at_once else ""
            else:
                at_once = len(nodes)
            return self._made(one, worst, why, paths, (_name(one),), nodes, at_once, "", limit, False)
        nodes = self.ground.named(self.effects.install.nodes)
        return self._made(one, worst, why, paths, (), nodes, 0, "", "", False)

    def _made(  # noqa: PLR0917 — the fields of a hit, from three callers
        self,
        one: Compared,
        worst: str,
        why: str,
        paths: tuple[str, ...],
        restarts: tuple[str, ...],
        nodes: tuple[str, ...],
        at_once: int,
        label: str,
        limit: str,
        interrupts: bool,
    ) -> Hit:
        return Hit(
            what=f"{one.wanted.kind} {_name(one)}",
            change="created" if one.change == "unvalidated" else one.change,
            worst=worst,
            why=why,
            paths=paths[:SHOWN_PATHS],
            restarts=restarts,
            nodes=nodes if rank(worst) >= rank(NETWORK) else (),
            count=len(nodes),
            at_once=at_once,
            controller=label,
            limit=limit,
            reserves=bool(limit) and bool(nodes) and rank(worst) >= rank(GPU_PODS),
            interrupts=interrupts or rank(worst) >= rank(GPU_PODS),
        )

    def _is_idle(self, effect: ChangeEffect, *sides: Mapping[str, Any]) -> bool:
        """Return whether the effect's subject does not run, before and after.

        The operator's own settings tell.
        """
        asked = [self._settings(effect.kind, side) for side in sides]
        return bool(effect.unless) and all(any(clause.holds(side) for clause in effect.unless) for side in asked)

    def _settings(self, kind: str, raw: Mapping[str, Any]) -> Mapping[str, Any]:
        """The object itself where it is the operator's settings; else those, of this plan or of the cluster."""
        known = tuple(self.effects.controllers.values())
        if not known or kind in (controller.kind for controller in known):
            return raw
        return self.own.get((known[0].kind, known[0].object)) or self.read(known[0]) or {}

    def _nodes(
        self,
        one: Compared,
        effect: ChangeEffect,
        raw: Mapping[str, Any],
        after: Mapping[str, Any],
        daemons: Sequence[Mapping[str, Any]],
    ) -> tuple[str, ...]:
        if daemons:
            return tuple(sorted({name for daemon in daemons for name in self.ground.running(daemon)}))
        if effect.nodes:
            return self.ground.named(effect.nodes)
        if one.wanted.kind == "DaemonSet":
            return tuple(sorted({*self.ground.running(raw), *self.ground.running(after)}))
        return ()

    # ── who takes nodes out ───────────────────────────────────────────────────────────────────────────────────────
    def _controlled(self, effect: ChangeEffect, count: int) -> tuple[str, str, int, str, str]:
        """(class, why, at once, where that is set, label) of what an upgrade controller takes node by node."""
        controller = self.effects.controllers[effect.controller]
        raw = self.own.get((controller.kind, controller.object)) or self.read(controller) or {}
        told = look_up(raw, controller.at) or {}
        if not told.get("autoUpgrade", controller.is_on):
            why = "Its upgrade controller is off: a node takes it when its pod is deleted, or when it restarts."
            return NEW_PODS, why, 0, "", ""
        parallel = int(told.get("maxParallelUpgrades", controller.parallel))
        most = amount(told.get("maxUnavailable", controller.unavailable), count, default=count)
        at_once = max(1, min(parallel or count, most, count)) if count else 0
        drains = bool((told.get("drain") or {}).get("enable"))
        how = "cordons and drains" if drains else "cordons"
        limit = f", {at_once} at once at most" if at_once else ""
        why = f"{effect.why} Its upgrade controller {how} each node{limit}."
        worst = strictest((effect.worst, DRAIN)) if drains else effect.worst
        return worst, why, at_once, controller.limit, controller.label


def blast_of(
    scene: Scene,
    compared: Sequence[Compared],
    *,
    action: str,
    destroys: Sequence[str] = (),
    undo: WholeEffect | None = None,
) -> Blast:
    """`action`: install, upgrade, adopt, remove or none. `destroys`: kinds that go with all their objects."""
    if action == NONE:
        return Blast()
    if action == INSTALL:
        found = list(scene.whole(scene.effects.install, compared, "created"))
        undo = undo or scene.effects.remove
    elif action == REMOVE:
        found = list(scene.whole(scene.effects.remove, compared, "deleted"))
        undo = undo or scene.effects.install
    else:
        found = list(scene.hits(compared))
    if destroys:
        why = "Kubernetes deletes all objects of a kind whose definition goes, and what runs because of them."
        worst = strictest((scene.effects.remove.worst, scene.effects.unknown, GPU_PODS))
        found.append(Hit(", ".join(destroys), "deleted", worst, why, interrupts=True))
    deleted = tuple(sorted(f"{one.wanted.kind} {_name(one)}" for one in compared if one.change == "deleted"))
    return gathered(found, scene.ground, deleted=deleted, undo=undo)


def gathered(
    hits: Iterable[Hit],
    ground: Ground,
    *,
    deleted: tuple[str, ...] = (),
    undo: WholeEffect | None = None,
) -> Blast:
    """All hits of one component, or one group of policy objects, as one."""
    # What is created or changed live is in the differences, and needs no word here.
    told = sorted((hit for hit in hits if hit.worst != LIVE), key=lambda hit: (-rank(hit.worst), hit.what, hit.paths))
    first = told[0] if told else None
    disruptive = [hit for hit in told if hit.nodes]
    at_once = max((hit.at_once or 1 for hit in disruptive), default=0)
    ended = {name for hit in disruptive if hit.interrupts for name in hit.nodes}
    held = [one for one in ground.held if one.node in ended]
    jobs: set[GpuPodOwner] = {one.job for one in held}
    names = {name for hit in disruptive for name in hit.nodes}
    return Blast(
        worst=first.worst if first else LIVE,
        why=first.why if first else "No running pod is touched.",
        hits=tuple(told),
        deleted=deleted,
        places=max((hit.at_once or 1 for hit in disruptive if hit.reserves), default=0),
        nodes_at_once=at_once,
        gpus_at_once=max((ground.most_gpus(hit.nodes, hit.at_once or 1) for hit in disruptive), default=0),
        jobs=tuple(sorted(map(str, jobs))),
        gpu_pods=len(held),
        gpus=ground.gpus(names),
        undo=undo.worst if undo else "",
        undo_why=undo.why if undo else "",
    )


def differing(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Dotted paths of what differs; items of a list that all have names are held together by those."""
    left, right = _flat(before), _flat(after)
    return sorted(path for path in left.keys() | right.keys() if left.get(path) != right.get(path))


def counts(kind: str, path: str) -> bool:
    """Return whether a difference there can reach a pod: of workloads only the pods' template can."""
    if kind in _WORKLOADS:
        return path.startswith(_TEMPLATE)
    if kind == "Namespace":
        return path.startswith("metadata.labels")
    return path.partition(".")[0] not in ("metadata", "status", "apiVersion", "kind")


def amount(raw: Any, of_all: int, *, default: int) -> int:
    """Return how many nodes `2` or `25%` are.

    Rounded up, as Kubernetes rounds `maxUnavailable`.
    """
    text = str(raw if raw is not None else "").strip()
    if text.endswith("%") and text[:-1].isdecimal():
        return ceil(of_all * int(text[:-1]) / 100)
    return int(text) if text.isdecimal() else default


def _rolled(after: Mapping[str, Any], count: int, effect: ChangeEffect) -> tuple[str, str, int]:
    """(class, why, at once) of a DaemonSet whose pods change, by its update strategy."""
    strategy = (after.get("spec") or {}).get("updateStrategy") or {}
    if strategy.get("type") == "OnDelete":
        why = "Its update strategy is OnDelete: a node takes it when its pod is deleted, or when it restarts."
        return strictest(c for c in (NEW_PODS, effect.worst) if rank(c) <= rank(NEW_PODS)), why, 0
    rolling = strategy.get("rollingUpdate") or {}
    # Of both shares the rounded-up one counts, as the DaemonSet controller does it; with a surge the other is 0.
    most = max(
        amount(rolling.get("maxUnavailable"), count, default=1), amount(rolling.get("maxSurge"), count, default=0)
    )
    return effect.worst, effect.why, min(max(1, most), count) if count else 0


def _limit(one: Compared) -> str:
    """Name the field in which an operator sets how many nodes a DaemonSet takes at once."""
    return f"DaemonSet {one.wanted.name}, spec.updateStrategy.rollingUpdate.maxUnavailable"


def _is_gradual(one: Compared, effect: ChangeEffect) -> bool:
    """Return whether it upgrades an object that runs, which proceeds node by node.

    An object that is created or deleted comes or goes everywhere at once.
    """
    if one.change != "changed":
        return False
    if one.wanted.kind in _WORKLOADS or not effect.paths:
        return True
    return any(look_up(one.live or {}, path) is not None for path in effect.paths)


def _flat(raw: Any, path: str = "") -> dict[str, Any]:
    if isinstance(raw, Mapping) and raw:
        items: Iterable[tuple[str, Any]] = ((str(key), value) for key, value in raw.items())
    elif isinstance(raw, list) and raw and all(isinstance(one, Mapping) and one.get("name") for one in raw):
        items = ((str(one["name"]), one) for one in raw)
    else:
        return {path: raw}
    out: dict[str, Any] = {}
    for key, value in items:
        out |= _flat(value, f"{path}.{key}" if path else key)
    return out


def _name(one: Compared) -> str:
    return f"{one.namespace}/{one.wanted.name}" if one.namespace else one.wanted.name


def _of(raw: Mapping[str, Any], name: str) -> str:
    return str((raw.get("metadata") or {}).get(name) or "")
