"""Laying what a document wants of the cluster over what it extends, and what only shows side by side."""

from __future__ import annotations

from collections.abc import Iterable

from profiles.content.cluster import canonical, merged
from profiles.content.content import Content, WantedComponent, WantedObject
from profiles.document.cluster_schema import MAX_COMPONENTS
from profiles.document.document import DocumentComponent, ProfileDocument, ProfileNote
from profiles.document.plain_json import Unfit, checked
from profiles.policies import kinds, queues, references, rivals, storage

MAX_TOGETHER = 512 * 1024
"""Characters of all components and objects as JSON, with what is inherited: a revision is one row."""


def names(of: Content | ProfileDocument) -> set[str]:
    """Name components and policies as `remove` writes them: `components.cilium`, `policies.Queue/default`."""
    return {f"components.{c.name}" for c in of.components} | {f"policies.{policy.title}" for policy in of.policies}


def components(
    document: ProfileDocument, parent: Content, gone: frozenset[str], origin: str
) -> Iterable[WantedComponent]:
    out = {c.name: c for c in parent.components if f"components.{c.name}" not in gone}
    for wish in document.components:
        out[wish.name] = _laid_over(out.get(wish.name), wish, origin)
    return out.values()


def _laid_over(below: WantedComponent | None, wish: DocumentComponent, origin: str) -> WantedComponent:
    """Version and reason where one is given, presets where they are, values key by key."""
    if wish.is_gone:
        return WantedComponent(wish.name, origin=origin, why=wish.why, is_gone=True)
    below = below if below and not below.is_gone else WantedComponent(wish.name)
    return WantedComponent(
        name=wish.name,
        version=wish.version or below.version,
        presets=below.presets if wish.presets is None else wish.presets,
        values=merged(below.values, wish.values),
        origin=origin,
        why=wish.why or below.why,
    )


def policies(document: ProfileDocument, parent: Content, gone: frozenset[str], origin: str) -> Iterable[WantedObject]:
    """An object named again replaces the inherited one as a whole."""
    out = {policy.title: policy for policy in parent.policies if f"policies.{policy.title}" not in gone}
    for own in document.policies:
        out[own.title] = WantedObject(own.api_version, own.kind, own.name, own.namespace, own.body, origin)
    return out.values()


def together(document: ProfileDocument, content: Content) -> tuple[list[ProfileNote], list[ProfileNote]]:
    """(problems, warnings)"""
    problems = [*_too_much(document, content), *_one_default(document, content), *_circle(document, content)]
    warnings = (_without_component, _dangling, _rivals)
    return problems, [note for warn in warnings for note in warn(document, content)]


def _note(document: ProfileDocument, path: str, code: str, message: str) -> ProfileNote:
    return ProfileNote(path, document.line(path), code, message)


def _too_much(document: ProfileDocument, content: Content) -> Iterable[ProfileNote]:
    """Each document is bounded; layers add up."""
    for component in content.components:
        try:
            checked(component.values, (), most=kinds.MAX_OBJECT * 4)
        except Unfit as refusal:
            yield _note(document, f"components.{component.name}", refusal.code, f"with what it inherits {refusal}")
    if len(content.components) > MAX_COMPONENTS:
        message = f"{len(content.components)} with what is inherited; at most {MAX_COMPONENTS} are accepted"
        yield _note(document, "components", "too-many", message)
    if len(content.policies) > kinds.MAX_OBJECTS:
        message = f"{len(content.policies)} with what is inherited; at most {kinds.MAX_OBJECTS} are accepted"
        yield _note(document, "policies", "too-many", message)
    size = sum(len(canonical(component.to_json())) for component in content.components)
    size += sum(len(canonical(policy.to_json())) for policy in content.policies)
    if size > MAX_TOGETHER:
        message = f"{size:,} characters of components and objects; at most {MAX_TOGETHER:,} are kept"
        yield _note(document, "", "too-long", message)


def _one_default(document: ProfileDocument, content: Content) -> Iterable[ProfileNote]:
    defaults = [w for w in content.policies if w.kind == "PriorityClass" and w.body.get("globalDefault")]
    for other in defaults[1:]:
        message = f"is the default for all pods, and so is {defaults[0].title}; there can be one"
        yield _note(document, f"policies.{other.title}.globalDefault", "given-twice", message)
    classes = [w for w in content.policies if w.kind == "StorageClass" and storage.is_default(w.body)]
    for other in classes[1:]:
        message = f"is the default for all claims, and so is {classes[0].title}; the newer of two would be it"
        yield _note(document, f"policies.{other.title}.metadata.annotations", "given-twice", message)


def _circle(document: ProfileDocument, content: Content) -> Iterable[ProfileNote]:
    parents = {w.name: target for w in content.policies if w.kind == "Queue" for _, _, target in references.of(w)}
    if circle := queues.circle(parents):
        message = f"goes round in a circle: {' under '.join(circle)}"
        yield _note(document, f"policies.Queue/{circle[0]}.spec.parent", "circle", message)


def _without_component(document: ProfileDocument, content: Content) -> Iterable[ProfileNote]:
    wanted = {component.name for component in content.components if not component.is_gone}
    gone = {component.name for component in content.components if component.is_gone}
    seen: set[str] = set()
    for item in content.policies:
        kind = kinds.KINDS.get(item.kind)
        if kind and kind.component and wanted.isdisjoint(kind.components) and kind.component not in seen:
            seen.add(kind.component)
            if kind.component in gone:
                message = f"{item.kind} is known to clusters that have {kind.component}, which this profile removes"
                yield _note(document, f"policies.{item.title}", "needs-component", message)
                continue
            message = (
                f"{item.kind} is known to clusters that have {kind.component}; "
                f"this profile does not bring it: add {kind.component} under components, or provide it yourself"
            )
            yield _note(document, f"policies.{item.title}", "needs-component", message)


def _dangling(document: ProfileDocument, content: Content) -> Iterable[ProfileNote]:
    there = {item.title for item in content.policies}
    for item in content.policies:
        for path, kind, name in references.of(item):
            if f"{kind}/{name}" not in there and (kind, name) != ("Queue", "default"):
                message = f"{kind} {name} is not in this profile: it must be in the cluster already"
                yield _note(document, f"policies.{item.title}.{path}", "not-here", message)


def _rivals(document: ProfileDocument, content: Content) -> Iterable[ProfileNote]:
    for policy, path, message in rivals.among(content.policies):
        yield _note(document, f"policies.{policy.title}.{path}", "rivals", message)
