"""Laying a document over the revision it extends, and what only shows in all layers together."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from contract import isolation, key_lists, keys, kubelet, resource_managers
from contract.isolation import Isolation
from contract.nodetuning import MAX_SETTINGS
from profiles.content.content import Content, Mark, WantedSetting, WantedTaint, build
from profiles.document import cluster_layering
from profiles.document.document import InvalidProfile, ProfileDocument, ProfileNote


@dataclass(frozen=True, slots=True)
class Checked:
    content: Content
    warnings: tuple[ProfileNote, ...]
    document: ProfileDocument


def flatten(document: ProfileDocument, parent: Content | None, *, origin: str) -> Checked:
    """Lay the document over its parent; what it says itself gets `origin`. Raises InvalidProfile."""
    parent = parent or Content()
    problems = _bad_removals(document, parent)
    gone = frozenset(document.remove)
    settings = {s.key: s for s in parent.settings if s.key not in gone}
    settings |= {
        w.key: WantedSetting(w.key, w.operator, w.value, str(keys.apply_class(w.key)), origin, w.why)
        for w in document.settings
    }
    content = build(
        settings=list(settings.values()),
        labels=_laid_over("labels", parent.labels, document.labels, gone, origin),
        annotations=_laid_over("annotations", parent.annotations, document.annotations, gone, origin),
        taints=[
            *(t for t in parent.taints if f"taints.{t.name}" not in gone and not _retaints(document, t)),
            *(WantedTaint(key, value, effect, origin) for key, effect, value in document.taints),
        ],
        components=cluster_layering.components(document, parent, gone, origin),
        policies=cluster_layering.policies(document, parent, gone, origin),
    )
    together, warnings = _together(document, content)
    also, cautions = cluster_layering.together(document, content)
    problems, warnings = [*problems, *together, *also], [*warnings, *cautions]
    if problems:
        raise InvalidProfile(problems)
    return Checked(content, tuple(sorted((*document.warnings, *warnings), key=lambda note: note.line)), document)


def _retaints(document: ProfileDocument, taint: WantedTaint) -> bool:
    return any((key, effect) == (taint.key, taint.effect) for key, effect, _ in document.taints)


def _laid_over(
    part: str, below: Sequence[Mark], above: Sequence[tuple[str, str]], gone: frozenset[str], origin: str
) -> list[Mark]:
    out = {mark.key: mark for mark in below if f"{part}.{mark.key}" not in gone}
    return list((out | {key: Mark(key, value, origin) for key, value in above}).values())


def _bad_removals(document: ProfileDocument, parent: Content) -> list[ProfileNote]:
    inherited = {s.key for s in parent.settings}
    inherited |= {f"labels.{mark.key}" for mark in parent.labels} | {f"taints.{t.name}" for t in parent.taints}
    inherited |= {f"annotations.{mark.key}" for mark in parent.annotations}
    inherited |= cluster_layering.names(parent)
    own = (
        cluster_layering.names(document)
        | {wish.key for wish in document.settings}
        | {f"labels.{key}" for key, _ in document.labels}
    )
    own |= {f"annotations.{key}" for key, _ in document.annotations}
    own |= {f"taints.{key}:{effect}" for key, effect, _ in document.taints}
    out: list[ProfileNote] = []
    for name in document.remove:
        line = document.line(f"remove.{name}")
        if name in own:
            out.append(ProfileNote(f"remove.{name}", line, "contradiction", "is both set and removed here"))
        elif name not in inherited:
            out.append(
                ProfileNote(f"remove.{name}", line, "not-inherited", "is not inherited, so it cannot be removed")
            )
    return out


_THRESHOLDS = tuple(tuple(f"net.{family}.neigh.default.gc_thresh{n}" for n in (1, 2, 3)) for family in ("ipv4", "ipv6"))


def _together(document: ProfileDocument, content: Content) -> tuple[list[ProfileNote], list[ProfileNote]]:
    """Problems and warnings that only show in all layers together, inherited settings included."""
    by_key = {s.key: s for s in content.settings}
    problems: list[ProfileNote] = []
    warnings: list[ProfileNote] = []

    def note(key: str, code: str, message: str) -> ProfileNote:
        return ProfileNote(f"settings.{key}", document.line(f"settings.{key}"), code, message)

    why = dict.fromkeys(key_lists.COUPLED, "writing one sets the other to 0")
    why |= dict.fromkeys(key_lists.ONE_VALUE, "both are names of one value")
    why |= dict.fromkeys(isolation.RIVALS, isolation.WHY_RIVALS)
    for group, reason in why.items():
        both = sorted(group & by_key.keys(), key=lambda k: (document.lines.get(f"settings.{k}", 0), k))
        if len(both) > 1:
            other, last = by_key[both[0]], both[-1]
            cure = f"name {other.key} under remove" if f"settings.{other.key}" not in document.lines else "keep one"
            message = f"conflicts with {other.key} ({other.origin}): {reason}; {cure}"
            problems.append(note(last, "coupled", message))
    for trio in _THRESHOLDS:
        there = [by_key[key] for key in trio if key in by_key]
        for lower, higher in itertools.pairwise(there):
            if int(lower.value) > int(higher.value):
                message = f"{lower.value} is above {higher.key}, which is {higher.value}"
                problems.append(note(lower.key, "order", message))
    for key in by_key:
        total, _, node = key.partition(".node")
        if node and total in by_key and key.startswith("hugepages-"):
            message = f"conflicts with {total}, which spreads its pages over all NUMA nodes"
            problems.append(note(key, "coupled", message))
    thresholds = {key: by_key[key].value for key in kubelet.TOGETHER if key in by_key}
    if thresholds and (why_not := kubelet.unstartable(thresholds)):
        if len(thresholds) == len(kubelet.TOGETHER):
            problems.append(note(kubelet.TOGETHER[-1], "order", why_not))
        else:
            # A node may have another partner than the default: its agent refuses where it has not.
            warnings.append(note(next(iter(thresholds)), "order", f"{why_not}; set both"))
    managers = {key: by_key[key].value for key in resource_managers.FLAGS if key in by_key}
    for key, is_sure, why_not in _managers(managers):
        (problems if is_sure else warnings).append(note(key, "kubelet", why_not))
    for key, is_sure, why_not in _isolated({key: setting.value for key, setting in by_key.items()}):
        (problems if is_sure else warnings).append(note(key, "isolation", why_not))
    ratio, background = by_key.get("vm.dirty_ratio"), by_key.get("vm.dirty_background_ratio")
    if ratio and background and int(background.value) >= int(ratio.value):
        message = f"is not below vm.dirty_ratio ({ratio.value}); the kernel then uses half of that"
        warnings.append(note(background.key, "without-effect", message))
    if len(by_key) > MAX_SETTINGS:
        problems.append(
            ProfileNote("settings", 1, "too-many", f"{len(by_key)} settings; a node takes at most {MAX_SETTINGS}")
        )
    return problems, warnings


def _managers(given: Mapping[str, str]) -> Iterator[tuple[str, bool, str]]:
    """Yield key, whether no node's kubelet would start, and why, of the kubelet's resource managers.

    What the profile leaves out a node's own files may say, so that it is only warned of: plan and agent judge by those.
    """
    key, why = resource_managers.unstartable(given)
    if why:
        yield key, not key.startswith(resource_managers.OPTION) or resource_managers.CPU_POLICY in given, why
    if given.get(resource_managers.CPU_POLICY) == "static" and resource_managers.CPUS not in given:
        message = f"works only where the kubelet reserves CPUs by its own files: set {resource_managers.CPUS}, too"
        yield resource_managers.CPU_POLICY, False, message
    if given.get(resource_managers.MEMORY_POLICY) == "Static" and resource_managers.MEMORY not in given:
        message = f"needs {resource_managers.MEMORY} of as much as the kubelet reserves (kubelet.reserved shows it)"
        yield resource_managers.MEMORY_POLICY, False, message
    if resource_managers.MEMORY in given and given.get(resource_managers.MEMORY_POLICY) != "Static":
        message = f"is used only with {resource_managers.MEMORY_POLICY} Static"
        yield resource_managers.MEMORY, False, message


def _isolated(given: Mapping[str, str]) -> Iterator[tuple[str, bool, str]]:
    """Yield key, whether it is certain, and why, of what isolated CPUs do not agree with."""
    if isolation.KEY not in given:
        return
    if why := isolation.impossible(given[isolation.KEY], None, given.get(resource_managers.CPUS, "")):
        yield isolation.KEY, True, why
    if given.get(resource_managers.CPU_POLICY, "none") == "static":
        return
    is_domain = Isolation.of(given[isolation.KEY]).has_domain
    effect = (
        "with domain, and without the static policy, threads of pods pile up on the CPU that they start on"
        if is_domain
        else "any pod may run on isolated CPUs"
    )
    message = f"{effect} where the kubelet's CPU manager does not give them out: set {resource_managers.CPU_POLICY}"
    yield isolation.KEY, False, f"{message} to static"
