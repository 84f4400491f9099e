"""Comparison of the revision that helm recorded with the one that was approved.

helm renders once more when it installs, with the cluster before it. A chart can render otherwise then, and no look
before can exclude it: a template that is put together while it renders (`tpl`) hides what it asks, and values chosen by
chance or by the clock differ the next time. So helm's own record is compared afterwards.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import replace
from typing import Any

from components.helm import rendering
from components.helm.releases import Release
from components.helm.rendering import Manifest, Rendered

_ANNOTATION = re.compile(r"/metadata/annotations/[^/]+")


def others(approved: Rendered, release: Release) -> list[str]:
    """Kind and name of each object that is other than approved, is missing, or came besides; empty: all is as it was.

    Generated places count for nothing: they are other each time, and the plan says so. Nor does an annotation that has
    the revision's number, of which a rendering only knows the first.
    """
    wanted = {manifest.key: manifest for manifest in (*approved.objects, *approved.hooks)}
    manifests = list(_recorded(release))
    there = Counter(manifest.key for manifest in manifests)
    out = [_named(manifest) for key, manifest in wanted.items() if there[key] != 1]
    for manifest in manifests:
        plan = wanted.get(manifest.key)
        if plan is None or (there[manifest.key] == 1 and not _is_same(plan, manifest.raw, release.revision)):
            out.append(_named(manifest))
    return list(dict.fromkeys(out))


def renumbered(wanted: Iterable[Manifest], release: Release, numbers: Set[int], number: int = 0) -> list[Manifest]:
    """Return rendered objects with `number` in each annotation that holds a revision's; 0: what the release has there.

    A rendering knows the first revision's number only. `numbers`: of the release's revision, and of those that it goes
    back to, whose objects a rollback has.
    """
    there = {manifest.key: manifest.raw for manifest in _manifests(release.manifest)}
    return [_numbered(manifest, there.get(manifest.key), numbers, number) for manifest in wanted]


def _numbered(manifest: Manifest, there: Mapping[str, Any] | None, numbers: Set[int], number: int) -> Manifest:
    if there is None:
        return manifest
    before, after, raw = manifest.masked(), rendering.with_masks(there, manifest.generated), manifest.raw
    for at in rendering.differing(before, after):
        if any(_is_number(before, after, at, revision) for revision in numbers):
            raw = rendering.with_masks(raw, [at], str(number or _at(after, at)))
    return replace(manifest, raw=raw)


def _recorded(release: Release) -> Iterator[Manifest]:
    # helm records a hook without the line break at its end, with which `helm template` prints it: a text of several
    # lines that ends there would be another one.
    for text in (release.manifest, *(f"{hook}\n" for hook in release.hooks)):
        yield from _manifests(text)


def _manifests(text: str) -> Iterator[Manifest]:
    for raw, _ in rendering.split(text.encode()):
        yield Manifest(raw)


def _is_same(plan: Manifest, raw: Mapping[str, Any], revision: int) -> bool:
    before, after = plan.masked(), rendering.with_masks(raw, plan.generated)
    return all(_is_number(before, after, place, revision) for place in rendering.differing(before, after))


def _is_number(before: Any, after: Any, place: str, revision: int) -> bool:
    """Return whether that is an annotation with the number of the first revision, and of this one."""
    is_annotation = _ANNOTATION.search(place) is not None
    return is_annotation and bool(_at(before, place) == "1" and _at(after, place) == str(revision))


def _at(raw: Any, pointer: str) -> Any:
    for part in (step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]):
        raw = rendering.step(raw, part)
    return raw


def _named(manifest: Manifest) -> str:
    return (
        f"{manifest.kind} {manifest.namespace}/{manifest.name}"
        if manifest.namespace
        else f"{manifest.kind} {manifest.name}"
    )


def listed(names: Iterable[str], most: int = 5) -> str:
    """A few of them, and how many more there are."""
    all_names = list(names)
    return ", ".join(all_names[:most]) + (f" and {len(all_names) - most} more" if len(all_names) > most else "")
