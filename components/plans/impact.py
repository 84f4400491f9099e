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
    out = [compared_object.note for compared_object in compared if compared_object.note]
    out += _destroyed(gone)
    out += _removed(compared)
    out += _restarts(compared)
    out += _webhooks(compared)
    out += _changed_crds(server, served, compared, crds)
    out += _generated(compared)
    out += _revert(compared, crds, is_install=is_install)
    return sorted(out, key=lambda note: (BLOCK, WARN, INFO).index(note.severity))


def hooks(manifests: Sequence[Manifest], *, is_upgrade: bool) -> list[PlanNote]:
    """Note the hooks that helm runs besides, and waits for, before and after."""
    moments = ("pre-upgrade", "post-upgrade") if is_upgrade else ("pre-install", "post-install")
    shown = []
    for manifest in manifests:
        moments_of_hook = [moment.strip() for moment in str(manifest.annotations.get(HOOK)).split(",")]
        if moment := next((moment for moment in moments_of_hook if moment in moments), ""):
            shown.append(f"{manifest.kind} {manifest.name} ({moment})")
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
    names = _listed([compared_object.wanted.name for compared_object in absent])
    many = "1 definition" if len(absent) == 1 else f"{len(absent)} definitions"
    title = f"{many} of the chart's crds/ {'is' if len(absent) == 1 else 'are'} created before helm runs"
    return [PlanNote(INFO, "crds-created", title, f"Setpoint creates what is not there; a revert leaves it: {names}.")]


def unserved(
    served: ServedApis, compared: Sequence[Compared], crds: Sequence[Manifest], absent: Sequence[Compared]
) -> list[PlanNote]:
    """Objects of an API version that the definition in the cluster does not serve, and that is not added to it."""
    made = {compared_object.wanted.name for compared_object in absent}
    there = {defined(crd.raw): crd.name for crd in crds if crd.kind == DEFINITION and crd.name not in made}
    lacking = [
        (compared_object, name)
        for compared_object in compared
        if compared_object.change == "unvalidated"
        and not served.find(compared_object.wanted.api_version, compared_object.wanted.kind)
        and (name := there.get((compared_object.wanted.api_version.rpartition("/")[0], compared_object.wanted.kind)))
    ]
    if not lacking:
        return []
    first, name = lacking[0]
    title = (
        f"helm would refuse this: {first.wanted.kind} {_name(first)} is of {first.wanted.api_version}, which the "
        f"definition {name} in the cluster does not serve"
    )
    names = _listed(list(dict.fromkeys(name for _, name in lacking)))
    detail = f"What is in crds/ is created where it is not there, and never changed. Apply the chart's first: {names}."
    return [PlanNote(BLOCK, "crd-unserved", title, detail)]


def destroyed(server: ApiServer, served: ServedApis, compared: Sequence[Compared]) -> tuple[Destroyed, ...]:
    """Kinds whose definitions are deleted, with how many objects each takes along. Raises FleetUnavailable."""
    gone = [
        compared_object
        for compared_object in compared
        if compared_object.change == "deleted" and compared_object.wanted.kind == DEFINITION
    ]
    out = []
    for compared_object in gone:
        kind = str((((compared_object.live or {}).get("spec") or {}).get("names") or {}).get("kind"))
        out.append(
            Destroyed(compared_object.wanted.name, kind, count(server, served, compared_object.wanted.name, kind))
        )
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


def _destroyed(kinds: Sequence[Destroyed]) -> Iterator[PlanNote]:
    if len(empty := [kind.kind for kind in kinds if not kind.count]) > 1:
        yield PlanNote(WARN, "crd-removal", f"{len(empty)} kinds are removed that have no objects: {_listed(empty)}")
    elif empty:
        yield PlanNote(WARN, "crd-removal", f"The kind {empty[0]} is removed; it has no objects")
    for kind in kinds:
        if not kind.count:
            continue
        objects = "1 object" if kind.count == 1 else f"{kind.count:,} objects" if kind.count > 0 else "all its objects"
        yield PlanNote(
            WARN,
            "crd-destroys",
            f"The kind {kind.kind} is removed, and with it {objects}",
            f"{kind.definition} is deleted, and Kubernetes deletes what is of it. A revert brings back the kind, and "
            "none of the objects. Approving this needs consent that is typed.",
        )


def _revert(compared: Sequence[Compared], crds: Sequence[Manifest], *, is_install: bool) -> Iterator[PlanNote]:
    """Yield what a revert would delete as well: definitions among the chart's templates, with all objects of theirs."""
    made = [
        compared_object.wanted.name
        for compared_object in compared
        if compared_object.wanted.kind == DEFINITION
        and compared_object.change in ("created", "unvalidated")
        and not compared_object.wanted.is_kept
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
        for compared_object in compared:
            if compared_object.change == "deleted" and compared_object.wanted.kind == kind:
                nodes = f" on {_nodes(compared_object.live)}" if kind == "DaemonSet" else ""
                yield PlanNote(WARN, code, f"{kind} {_name(compared_object)} {words}{nodes}")


def _restarts(compared: Sequence[Compared]) -> Iterator[PlanNote]:
    for compared_object in compared:
        if compared_object.change != "changed" or compared_object.wanted.kind not in (
            "DaemonSet",
            "Deployment",
            "StatefulSet",
        ):
            continue
        before, after = (_template(side) for side in (compared_object.live, compared_object.result))
        if before == after:
            continue
        spec = (compared_object.result or {}).get("spec") or {}
        if compared_object.wanted.kind != "DaemonSet":
            pods = int(spec.get("replicas", 1))
            restart = (
                f"{compared_object.wanted.kind} {_name(compared_object)} restarts: {pods} pod{'' if pods == 1 else 's'}"
            )
            yield PlanNote(INFO, "restart", restart)
        elif (spec.get("updateStrategy") or {}).get("type") == "OnDelete":
            where = _nodes(compared_object.live)
            title = f"DaemonSet {_name(compared_object)} changes on {where}, and its pods do not restart by themselves"
            yield PlanNote(WARN, "restart", title, "Its update strategy is OnDelete.")
        else:
            yield PlanNote(
                WARN, "restart", f"DaemonSet {_name(compared_object)} restarts on {_nodes(compared_object.live)}"
            )


def _webhooks(compared: Sequence[Compared]) -> Iterator[PlanNote]:
    """One note for what has one name: a chart's validating and mutating webhooks usually do."""
    strict: dict[tuple[str, str], list[str]] = {}
    for compared_object in compared:
        if compared_object.wanted.kind in _WEBHOOKS and compared_object.change in ("created", "changed", "deleted"):
            hooks = [hook for hook in (compared_object.wanted.raw.get("webhooks") or []) if isinstance(hook, Mapping)]
            names = strict.setdefault((compared_object.wanted.name, compared_object.change), [])
            names += [str(hook.get("name")) for hook in hooks if hook.get("failurePolicy", "Fail") == "Fail"]
    for (name, change), webhooks in strict.items():
        if change == "deleted":
            yield PlanNote(WARN, "webhook", f"Webhooks of {name} are removed: their checks no longer apply")
        elif webhooks:
            title = f"Webhooks of {name} are {change}, and refuse what they cannot check"
            yield PlanNote(WARN, "webhook", title, f"While their server is away, requests fail: {_listed(webhooks)}.")


def _changed_crds(
    server: ApiServer, served: ServedApis, compared: Sequence[Compared], crds: Sequence[Manifest]
) -> Iterator[PlanNote]:
    for compared_object in compared:
        if compared_object.wanted.kind == DEFINITION and compared_object.change == "changed":
            yield PlanNote(WARN, "crd-change", f"The definition of {compared_object.wanted.name} changes")
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
    served_now, new_versions = (_versions(raw) for raw in (live, crd.raw))
    return served_now != new_versions


def _versions(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Schema by version; the API server fills in the rest."""
    versions = (raw.get("spec") or {}).get("versions") or []
    return {str(version.get("name")): version.get("schema") for version in versions if isinstance(version, Mapping)}


def _generated(compared: Sequence[Compared]) -> Iterator[PlanNote]:
    changed = [
        _name(compared_object)
        for compared_object in compared
        if compared_object.wanted.generated and compared_object.change == "changed"
    ]
    if changed:
        title = f"Credentials will be regenerated in {', '.join(changed[:_SHOWN])}"
        yield PlanNote(WARN, "generated", title, "The chart makes them while it renders, each time.")


def _template(raw: Mapping[str, Any] | None) -> Any:
    return ((raw or {}).get("spec") or {}).get("template")


def _nodes(raw: Mapping[str, Any] | None) -> str:
    number = int(((raw or {}).get("status") or {}).get("desiredNumberScheduled") or 0)
    return "1 node" if number == 1 else f"{number:,} nodes"


def _name(compared: Compared) -> str:
    return f"{compared.namespace}/{compared.wanted.name}" if compared.namespace else compared.wanted.name
