"""Kernel needs of a component's presets, judged against the kernel of every node that the component reaches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from clusters.models import Cluster, Node
from components.blast.ground import Ground
from components.catalog import kernels
from components.catalog.entry import Component, Preset
from components.helm.rendering import Manifest
from components.plans.prepared import BLOCK, WARN, PlanNote

CODE = "kernel"
SHOWN = 20
"""Nodes that a note names; more are counted."""


def notes(
    cluster: Cluster, component: Component, presets: Sequence[str], manifests: Sequence[Manifest], *, is_kept: bool
) -> Iterator[PlanNote]:
    """`is_kept`: it runs as it is wanted, so an old kernel is no reason to refuse what else the plan does."""
    needing = [preset for name in presets if (preset := component.presets.get(name)) and preset.kernel]
    if not needing:
        return
    reached = _reached(Ground.of(cluster), manifests)
    rows = Node.objects.present().filter(cluster=cluster, name__in=reached).order_by("name")
    releases = list(rows.values_list("name", "kernel"))
    for preset in needing:
        yield from _judged(component, preset, releases, is_kept=is_kept)


def _reached(ground: Ground, manifests: Sequence[Manifest]) -> set[str]:
    """Nodes where its DaemonSets have pods; all of them where it has none."""
    daemons = [manifest.raw for manifest in manifests if manifest.kind == "DaemonSet"]
    if not daemons:
        return {node.name for node in ground.nodes}
    return {name for daemon in daemons for name in ground.running(daemon)}


def _judged(
    component: Component, preset: Preset, releases: Sequence[tuple[str, str]], *, is_kept: bool
) -> Iterator[PlanNote]:
    judged = [(name, release, kernels.judge(release, preset.kernel)) for name, release in releases]

    def nodes(verdict: str) -> list[str]:
        return [f"{name} ({release or 'not reported'})" for name, release, of_node in judged if of_node == verdict]

    need = f"The preset {preset.name} needs Linux {preset.kernel.removeprefix('>=')} or later"
    if old := nodes(kernels.TOO_OLD):
        detail = f"{_named(old)}. Bring a newer kernel to them first, or leave the preset out of {component.title}."
        title = f"{need}, and {_nodes(old)} {'has' if len(old) == 1 else 'have'} an older one"
        yield PlanNote(WARN if is_kept else BLOCK, CODE, title, detail)
    if unsure := nodes(kernels.BACKPORTED):
        detail = f"{_named(unsure)}. Such kernels carry parts of newer ones, so the number alone does not decide."
        yield PlanNote(WARN, CODE, f"{need}: whether the vendor brought it to {_nodes(unsure)} is unknown", detail)
    if unknown := nodes(kernels.UNKNOWN):
        title = f"{need}, and the kernel of {_nodes(unknown)} is unknown"
        yield PlanNote(WARN, CODE, title, f"{_named(unknown)}.")


def _nodes(named: Sequence[str]) -> str:
    return f"{len(named):,} node{'' if len(named) == 1 else 's'}"


def _named(named: Sequence[str]) -> str:
    more = f" and {len(named) - SHOWN} more" if len(named) > SHOWN else ""
    return f"{', '.join(named[:SHOWN])}{more}"
