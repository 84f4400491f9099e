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
        for compared_object in compared:
            if compared_object.change == "changed":
                yield from self._changed(compared_object)
            elif compared_object.change != "same":
                yield from self._whole_object(compared_object)

    def whole(self, whole: WholeEffect, compared: Iterable[Compared], change: str) -> Iterator[Hit]:
        """Yield the one hit of an install or removal, with the DaemonSets that come or leave on every node at once."""
        daemons = [
            compared_object
            for compared_object in compared
            if compared_object.wanted.kind == "DaemonSet" and compared_object.change != "same"
        ]
        nodes = set(self.ground.named(whole.nodes))
        for daemon in daemons:
            if rank(self._of_daemon(daemon)) >= rank(NETWORK):
                nodes |= set(self.ground.running(daemon.result or daemon.live or daemon.wanted.raw))
        names = tuple(sorted(nodes))
        count, worst = len(names), whole.worst
        yield Hit(
            what="The release as a whole",
            change=change,
            worst=worst,
            why=whole.why,
            restarts=tuple(sorted(_name(daemon) for daemon in daemons)),
            nodes=names if rank(worst) >= rank(NETWORK) else (),
            count=count,
            at_once=count,
            interrupts=rank(worst) >= rank(GPU_PODS),
        )

    def _of_daemon(self, compared: Compared) -> str:
        effects = self.effects.of(compared.wanted.kind, compared.wanted.name, self.release)
        return strictest(effect.worst for effect in effects) if effects else self.effects.unknown

    def _changed(self, compared: Compared) -> Iterator[Hit]:
        before, after = compared.live or {}, compared.result or {}
        paths = [path for path in differing(before, after) if counts(compared.wanted.kind, path)]
        effects = self.effects.of(compared.wanted.kind, compared.wanted.name, self.release)
        by_effect: dict[int, list[str]] = {}
        unsaid: list[str] = []
        for path in paths:
            longest = max((effect.reach(path) for effect in effects), default=-1)
            if longest < 0:
                unsaid.append(path)
                continue
            nearest = [place for place, effect in enumerate(effects) if effect.reach(path) == longest]
            if best := [place for place in nearest if not self._is_idle(effects[place], before, after)]:
                by_effect.setdefault(max(best, key=lambda p: rank(effects[p].worst)), []).append(path)
        for place, paths_of_effect in sorted(by_effect.items()):
            yield self._hit(compared, effects[place], tuple(paths_of_effect))
        if unsaid:
            yield self._unsaid(compared, tuple(unsaid))

    def _whole_object(self, compared: Compared) -> Iterator[Hit]:
        """Created or deleted beside others that stay."""
        raw = compared.result or compared.live or compared.wanted.raw
        listed = self.effects.of(compared.wanted.kind, compared.wanted.name, self.release)
        # Of what has paths, those that the object has at all.
        there = [e for e in listed if not e.paths or any(look_up(raw, path) is not None for path in e.paths)]
        effects = [effect for effect in there or listed if not self._is_idle(effect, raw)]
        if effects:
            yield self._hit(compared, max(effects, key=lambda e: rank(e.worst)), ())
        elif not listed:
            yield self._unsaid(compared, ())

    def _hit(self, compared: Compared, effect: ChangeEffect, paths: tuple[str, ...]) -> Hit:
        raw = compared.live or compared.result or compared.wanted.raw
        after = compared.result or raw
        daemons = [d for d in self.daemons if _of(d, "name").startswith(effect.restarts)] if effect.restarts else []
        named = tuple(sorted(f"{_of(d, 'namespace')}/{_of(d, 'name')}" for d in daemons)) or effect.restarts
        if compared.wanted.kind == "DaemonSet":
            named = (_name(compared),)
        nodes = self._nodes(compared, effect, raw, after, daemons)
        worst, why, at_once, limit, label = effect.worst, effect.why, len(nodes), "", ""
        is_gradual = _is_gradual(compared, effect)
        if is_gradual and effect.controller:
            worst, why, at_once, limit, label = self._controlled(effect, len(nodes))
        elif is_gradual and effect.at_once:
            at_once = amount(
                look_up(self._settings(compared.wanted.kind, after), effect.at_once), len(nodes), default=1
            )
            limit = f"{compared.wanted.kind} {compared.wanted.name}, {effect.at_once}"
        elif is_gradual and compared.wanted.kind == "DaemonSet":
            worst, why, at_once = _rolled(after, len(nodes), effect)
            limit = _limit(compared) if at_once else ""
        return self._made(compared, worst, why, paths, named, nodes, at_once, label, limit, effect.interrupts)

    def _unsaid(self, compared: Compared, paths: tuple[str, ...]) -> Hit:
        """Return the hit of a change that the catalog does not list: its kind's, else the strictest plausible one."""
        kind, raw = compared.wanted.kind, compared.live or compared.result or compared.wanted.raw
        if known := harmless.known_effect(kind, compared.change):
            return self._made(compared, known[0], known[1], paths, (), (), 0, "", "", False)
        worst, why = self.effects.unknown, "The catalog does not know what this does, so the strictest is assumed."
        if kind == "DaemonSet":
            nodes, limit = tuple(self.ground.running(raw)), ""
            if compared.change == "changed":
                worst, why, at_once = _rolled(compared.result or raw, len(nodes), ChangeEffect(kind, worst, why))
                limit = _limit(compared) if at_once else ""
            else:
                at_once = len(nodes)
            return self._made(compared, worst, why, paths, (_name(compared),), nodes, at_once, "", limit, False)
        nodes = self.ground.named(self.effects.install.nodes)
        return self._made(compared, worst, why, paths, (), nodes, 0, "", "", False)

    def _made(  # noqa: PLR0917 — the fields of a hit, from three callers
        self,
        compared: Compared,
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
            what=f"{compared.wanted.kind} {_name(compared)}",
            change="created" if compared.change == "unvalidated" else compared.change,
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
        settings = [self._settings(effect.kind, side) for side in sides]
        return bool(effect.unless) and all(any(clause.holds(side) for clause in effect.unless) for side in settings)

    def _settings(self, kind: str, raw: Mapping[str, Any]) -> Mapping[str, Any]:
        """The object itself where it is the operator's settings; else those, of this plan or of the cluster."""
        known = tuple(self.effects.controllers.values())
        if not known or kind in (controller.kind for controller in known):
            return raw
        return self.own.get((known[0].kind, known[0].object)) or self.read(known[0]) or {}

    def _nodes(
        self,
        compared: Compared,
        effect: ChangeEffect,
        raw: Mapping[str, Any],
        after: Mapping[str, Any],
        daemons: Sequence[Mapping[str, Any]],
    ) -> tuple[str, ...]:
        if daemons:
            return tuple(sorted({name for daemon in daemons for name in self.ground.running(daemon)}))
        if effect.nodes:
            return self.ground.named(effect.nodes)
        if compared.wanted.kind == "DaemonSet":
            return tuple(sorted({*self.ground.running(raw), *self.ground.running(after)}))
        return ()

    # ── who takes nodes out ───────────────────────────────────────────────────────────────────────────────────────
    def _controlled(self, effect: ChangeEffect, count: int) -> tuple[str, str, int, str, str]:
        """(class, why, at once, where that is set, label) of what an upgrade controller takes node by node."""
        controller = self.effects.controllers[effect.controller]
        raw = self.own.get((controller.kind, controller.object)) or self.read(controller) or {}
        policy = look_up(raw, controller.at) or {}
        if not policy.get("autoUpgrade", controller.is_on):
            why = "Its upgrade controller is off: a node takes it when its pod is deleted, or when it restarts."
            return NEW_PODS, why, 0, "", ""
        parallel = int(policy.get("maxParallelUpgrades", controller.parallel))
        most = amount(policy.get("maxUnavailable", controller.unavailable), count, default=count)
        at_once = max(1, min(parallel or count, most, count)) if count else 0
        drains = bool((policy.get("drain") or {}).get("enable"))
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
        hits = list(scene.whole(scene.effects.install, compared, "created"))
        undo = undo or scene.effects.remove
    elif action == REMOVE:
        hits = list(scene.whole(scene.effects.remove, compared, "deleted"))
        undo = undo or scene.effects.install
    else:
        hits = list(scene.hits(compared))
        if scene.effects.is_untested:  # also where all that differs is harmless in other components
            hits += scene.whole(scene.effects.install, compared, "changed")
    if destroys:
        why = "Kubernetes deletes all objects of a kind whose definition goes, and what runs because of them."
        worst = strictest((scene.effects.remove.worst, scene.effects.unknown, GPU_PODS))
        hits.append(Hit(", ".join(destroys), "deleted", worst, why, interrupts=True))
    deleted = tuple(
        sorted(
            f"{compared_object.wanted.kind} {_name(compared_object)}"
            for compared_object in compared
            if compared_object.change == "deleted"
        )
    )
    return gathered(hits, scene.ground, deleted=deleted, undo=undo)


def gathered(
    hits: Iterable[Hit],
    ground: Ground,
    *,
    deleted: tuple[str, ...] = (),
    undo: WholeEffect | None = None,
) -> Blast:
    """All hits of one component, or one group of policy objects, as one."""
    # What is created or changed live is in the differences, and needs no word here.
    shown = sorted((hit for hit in hits if hit.worst != LIVE), key=lambda hit: (-rank(hit.worst), hit.what, hit.paths))
    first = shown[0] if shown else None
    disruptive = [hit for hit in shown if hit.nodes]
    at_once = max((hit.at_once or 1 for hit in disruptive), default=0)
    ended = {name for hit in disruptive if hit.interrupts for name in hit.nodes}
    pods = [pod for pod in ground.held if pod.node in ended]
    jobs: set[GpuPodOwner] = {pod.job for pod in pods}
    names = {name for hit in disruptive for name in hit.nodes}
    return Blast(
        worst=first.worst if first else LIVE,
        why=first.why if first else "No running pod is touched.",
        hits=tuple(shown),
        deleted=deleted,
        places=max((hit.at_once or 1 for hit in disruptive if hit.reserves), default=0),
        nodes_at_once=at_once,
        gpus_at_once=max((ground.most_gpus(hit.nodes, hit.at_once or 1) for hit in disruptive), default=0),
        jobs=tuple(sorted(map(str, jobs))),
        gpu_pods=len(pods),
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


def _limit(compared: Compared) -> str:
    """Name the field in which an operator sets how many nodes a DaemonSet takes at once."""
    return f"DaemonSet {compared.wanted.name}, spec.updateStrategy.rollingUpdate.maxUnavailable"


def _is_gradual(compared: Compared, effect: ChangeEffect) -> bool:
    """Return whether it upgrades an object that runs, which proceeds node by node.

    An object that is created or deleted comes or goes everywhere at once.
    """
    if compared.change != "changed":
        return False
    if compared.wanted.kind in _WORKLOADS or not effect.paths:
        return True
    return any(look_up(compared.live or {}, path) is not None for path in effect.paths)


def _flat(raw: Any, path: str = "") -> dict[str, Any]:
    if isinstance(raw, Mapping) and raw:
        items: Iterable[tuple[str, Any]] = ((str(key), value) for key, value in raw.items())
    elif isinstance(raw, list) and raw and all(isinstance(item, Mapping) and item.get("name") for item in raw):
        items = ((str(item["name"]), item) for item in raw)
    else:
        return {path: raw}
    out: dict[str, Any] = {}
    for key, value in items:
        out |= _flat(value, f"{path}.{key}" if path else key)
    return out


def _name(compared: Compared) -> str:
    return f"{compared.namespace}/{compared.wanted.name}" if compared.namespace else compared.wanted.name


def _of(raw: Mapping[str, Any], name: str) -> str:
    return str((raw.get("metadata") or {}).get(name) or "")
