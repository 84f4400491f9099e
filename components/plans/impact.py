"""Notes for a plan's reader on a component's objects, in words: data lost, restarts, possible blocks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from clusters.fleet import FleetRefused
from clusters.kube.apiserver import ApiServer, Call
from clusters.kube.discovery import ServedApis
from components.helm.rendering import HOOK, Manifest
from components.plans.diff import Compared
from components.plans.prepared import BLOCK, INFO, WARN, Destroyed, PlanNote

_WEBHOOKS = ("ValidatingWebhookConfiguration", "MutatingWebhookConfiguration")
DEFINITION = "CustomResourceDefinition"
_SHOWN = 6


def notes(
    server: ApiServer,
    served: ServedApis,
    compared: Sequence[Compared],
    crds: Sequence[Manifest],
    gone: Sequence[Destroyed] = (),
    *,
    is_install: bool = False,
) -> list[PlanNote]:
    """The worst first; `gone` is what `destroyed` found. Raises FleetUnavailable."""
    found = [one.note for one in compared if one.note]
    found += _destroyed(gone)
    found += _removed(compared)
    found += _restarts(compared)
    found += _webhooks(compared)
    found += _changed_crds(server, served, compared, crds)
    found += _generated(compared)
    found += _revert(compared, crds, is_install=is_install)
    return sorted(found, key=lambda note: (BLOCK, WARN, INFO).index(note.severity))


def hooks(found: Sequence[Manifest], *, is_upgrade: bool) -> list[PlanNote]:
    """Note the hooks that helm runs besides, and waits for, before and after."""
    moments = ("pre-upgrade", "post-upgrade") if is_upgrade else ("pre-install", "post-install")
    shown = []
    for one in found:
        told = [moment.strip() for moment in str(one.annotations.get(HOOK)).split(",")]
        if moment := next((moment for moment in told if moment in moments), ""):
            shown.append(f"{one.kind} {one.name} ({moment})")
    if not shown:
        return []
    title = f"helm runs hooks of the chart: {', '.join(shown[:_SHOWN])}{' and more' if len(shown) > _SHOWN else ''}"
    return [
        PlanNote(INFO, "hooks", title, "They are no part of the release: what they make stays where they leave it.")
    ]


def created(absent: Sequence[Compared]) -> list[PlanNote]:
    """Note the definitions of `crds/`, which are created before helm runs, and for good."""
    if not absent:
        return []
    names = _listed([one.wanted.name for one in absent])
    many = "1 definition" if len(absent) == 1 else f"{len(absent)} definitions"
    title = f"{many} of the chart's crds/ {'is' if len(absent) == 1 else 'are'} created before helm runs"
    return [PlanNote(INFO, "crds-created", title, f"Setpoint creates what is not there; a revert leaves it: {names}.")]


def unserved(
    served: ServedApis, compared: Sequence[Compared], crds: Sequence[Manifest], absent: Sequence[Compared]
) -> list[PlanNote]:
    """Objects of an API version that the definition in the cluster does not serve, and that is not added to it."""
    made = {one.wanted.name for one in absent}
    there = {defined(one.raw): one.name for one in crds if one.kind == DEFINITION and one.name not in made}
    lacking = [
        (one, name)
        for one in compared
        if one.change == "unvalidated"
        and not served.find(one.wanted.api_version, one.wanted.kind)
        and (name := there.get((one.wanted.api_version.rpartition("/")[0], one.wanted.kind)))
    ]
    if not lacking:
        return []
    one, name = lacking[0]
    title = (
        f"helm would refuse this: {one.wanted.kind} {_name(one)} is of {one.wanted.api_version}, which the definition "
        f"{name} in the cluster does not serve"
    )
    names = _listed(list(dict.fromkeys(name for _, name in lacking)))
    detail = f"What is in crds/ is created where it is not there, and never changed. Apply the chart's first: {names}."
    return [PlanNote(BLOCK, "crd-unserved", title, detail)]


def destroyed(server: ApiServer, served: ServedApis, compared: Sequence[Compared]) -> tuple[Destroyed, ...]:
    """Kinds whose definitions are deleted, with how many objects each takes along. Raises FleetUnavailable."""
    gone = [one for one in compared if one.change == "deleted" and one.wanted.kind == DEFINITION]
    out = []
    for one in gone:
        kind = str((((one.live or {}).get("spec") or {}).get("names") or {}).get("kind"))
        out.append(Destroyed(one.wanted.name, kind, count(server, served, one.wanted.name, kind)))
    return tuple(out)


def count(server: ApiServer, served: ServedApis, definition: str, kind: str) -> int:
    """Count the objects of a definition's kind; -1: they may not be read. Raises FleetUnavailable."""
    group = definition.partition(".")[2]
    for resource in served.resources.values():
        if resource.kind == kind and resource.api_version.rpartition("/")[0] == group:
            try:
                page = server.ask(Call("list", resource.plural), "GET", resource.path(), query={"limit": "1"}).object()
            except FleetRefused:
                return -1
            first = len(page.get("items") or ())
            return first + int((page.get("metadata") or {}).get("remainingItemCount") or 0) if first else 0
    return 0


def defined(raw: Mapping[str, Any]) -> tuple[str, str]:
    """Group and kind of what a definition defines."""
    spec = raw.get("spec") or {}
    return str(spec.get("group")), str((spec.get("names") or {}).get("kind"))


def _destroyed(found: Sequence[Destroyed]) -> Iterator[PlanNote]:
    if len(empty := [one.kind for one in found if not one.count]) > 1:
        yield PlanNote(WARN, "crd-removal", f"{len(empty)} kinds are removed that have no objects: {_listed(empty)}")
    elif empty:
        yield PlanNote(WARN, "crd-removal", f"The kind {empty[0]} is removed; it has no objects")
    for one in found:
        if not one.count:
            continue
        objects = "1 object" if one.count == 1 else f"{one.count:,} objects" if one.count > 0 else "all its objects"
        yield PlanNote(
            WARN,
            "crd-destroys",
            f"The kind {one.kind} is removed, and with it {objects}",
            f"{one.definition} is deleted, and Kubernetes deletes what is of it. A revert brings back the kind, and "
            "none of the objects. Approving this needs consent that is typed.",
        )


def _revert(compared: Sequence[Compared], crds: Sequence[Manifest], *, is_install: bool) -> Iterator[PlanNote]:
    """Yield what a revert would delete as well: definitions among the chart's templates, with all objects of theirs."""
    made = [
        one.wanted.name
        for one in compared
        if one.wanted.kind == DEFINITION and one.change in ("created", "unvalidated") and not one.wanted.is_kept
    ]
    if made:
        what = "the kind it brings" if len(made) == 1 else f"the {len(made)} kinds it brings"
        detail = f"Also objects created meanwhile:  {_listed(made)}."
        yield PlanNote(WARN, "revert-destroys", f"A revert removes {what}, with all their objects", detail)
    if is_install and crds:
        title = f"A revert leaves {len(crds)} definitions of the chart's crds/, and their objects"
        yield PlanNote(
            INFO, "revert-leaves", title, f"Neither Setpoint nor helm deletes those: {_listed([c.name for c in crds])}."
        )


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else "")


def _removed(compared: Sequence[Compared]) -> Iterator[PlanNote]:
    for kind, code, words in (
        ("Namespace", "namespace-removal", "is deleted with everything in it"),
        (
            "PersistentVolumeClaim",
            "volume-removal",
            "is deleted; what its volume's reclaim policy says happens to data",
        ),
        ("DaemonSet", "daemonset-removal", "is deleted"),
    ):
        for one in compared:
            if one.change == "deleted" and one.wanted.kind == kind:
                nodes = f" on {_nodes(one.live)}" if kind == "DaemonSet" else ""
                yield PlanNote(WARN, code, f"{kind} {_name(one)} {words}{nodes}")


def _restarts(compared: Sequence[Compared]) -> Iterator[PlanNote]:
    for one in compared:
        if one.change != "changed" or one.wanted.kind not in ("DaemonSet", "Deployment", "StatefulSet"):
            continue
        before, after = (_template(side) for side in (one.live, one.result))
        if before == after:
            continue
        spec = (one.result or {}).get("spec") or {}
        if one.wanted.kind != "DaemonSet":
            pods = int(spec.get("replicas", 1))
            said = f"{one.wanted.kind} {_name(one)} restarts: {pods} pod{'' if pods == 1 else 's'}"
            yield PlanNote(INFO, "restart", said)
        elif (spec.get("updateStrategy") or {}).get("type") == "OnDelete":
            title = f"DaemonSet {_name(one)} changes on {_nodes(one.live)}, and its pods do not restart by themselves"
            yield PlanNote(WARN, "restart", title, "Its update strategy is OnDelete.")
        else:
            yield PlanNote(WARN, "restart", f"DaemonSet {_name(one)} restarts on {_nodes(one.live)}")


def _webhooks(compared: Sequence[Compared]) -> Iterator[PlanNote]:
    """One note for what has one name: a chart's validating and mutating webhooks usually do."""
    strict: dict[tuple[str, str], list[str]] = {}
    for one in compared:
        if one.wanted.kind in _WEBHOOKS and one.change in ("created", "changed", "deleted"):
            hooks = [hook for hook in (one.wanted.raw.get("webhooks") or []) if isinstance(hook, Mapping)]
            names = strict.setdefault((one.wanted.name, one.change), [])
            names += [str(hook.get("name")) for hook in hooks if hook.get("failurePolicy", "Fail") == "Fail"]
    for (name, change), found in strict.items():
        if change == "deleted":
            yield PlanNote(WARN, "webhook", f"Webhooks of {name} are removed: their checks no longer apply")
        elif found:
            title = f"Webhooks of {name} are {change}, and refuse what they cannot check"
            yield PlanNote(WARN, "webhook", title, f"While their server is away, requests fail: {_listed(found)}.")


def _changed_crds(
    server: ApiServer, served: ServedApis, compared: Sequence[Compared], crds: Sequence[Manifest]
) -> Iterator[PlanNote]:
    for one in compared:
        if one.wanted.kind == DEFINITION and one.change == "changed":
            yield PlanNote(WARN, "crd-change", f"The definition of {one.wanted.name} changes")
    stale = [crd.name for crd in crds if _differs(server, served, crd)]
    if stale:
        title = f"{len(stale)} definitions in crds/ differ from the cluster's, which stay as they are"
        if len(stale) == 1:
            title = "1 definition in crds/ differs from the cluster's, which stays as it is"
        detail = f"Neither Setpoint nor helm changes what is there: {_listed(stale)}."
        yield PlanNote(WARN, "crd-stale", title, detail)


def _differs(server: ApiServer, served: ServedApis, crd: Manifest) -> bool:
    resource = served.find(crd.api_version, crd.kind)
    if resource is None:
        return False
    try:
        live = server.get(Call("get", resource.plural, crd.name), resource.path("", crd.name))
    except FleetRefused:
        return False
    served_now, wanted = (_versions(raw) for raw in (live, crd.raw))
    return served_now != wanted


def _versions(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Schema by version; the API server fills in the rest."""
    versions = (raw.get("spec") or {}).get("versions") or []
    return {str(one.get("name")): one.get("schema") for one in versions if isinstance(one, Mapping)}


def _generated(compared: Sequence[Compared]) -> Iterator[PlanNote]:
    changed = [_name(one) for one in compared if one.wanted.generated and one.change == "changed"]
    if changed:
        title = f"Credentials will be regenerated in {', '.join(changed[:_SHOWN])}"
        yield PlanNote(WARN, "generated", title, "The chart makes them while it renders, each time.")


def _template(raw: Mapping[str, Any] | None) -> Any:
    return ((raw or {}).get("spec") or {}).get("template")


def _nodes(raw: Mapping[str, Any] | None) -> str:
    number = int(((raw or {}).get("status") or {}).get("desiredNumberScheduled") or 0)
    return "1 node" if number == 1 else f"{number:,} nodes"


def _name(one: Compared) -> str:
    return f"{one.namespace}/{one.wanted.name}" if one.namespace else one.wanted.name
