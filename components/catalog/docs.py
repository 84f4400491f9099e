"""docs/components/*.md, made from the catalog: presets, decisions, readiness and hazards of each component."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from components.catalog import catalog, graph, presentation
from components.catalog.entry import Component, Hazard
from components.catalog.versions import Citation, range_text

HEAD = "<!-- Made from components/catalog/entries by `manage.py component_docs --write`; change the YAML instead. -->"


def everything() -> dict[str, str]:
    """Text by file name: one page a component, and README.md with all of them."""
    pages = {f"{component.name}.md": page(component) for component in catalog.all()}
    return {**pages, "README.md": index()}


def index() -> str:
    rows = [
        (
            f"[{component.title}]({component.name}.md)",
            component.summary,
            f"`{component.newest}`",
            component.versions[0].kubernetes or "–",
            f"`{component.namespace}`",
            str(len(component.presets)),
        )
        for component in catalog.all()
    ]
    table = _table(("Component", "What for", "Newest checked", "Kubernetes", "Namespace", "Presets"), rows)
    return (
        f"{HEAD}\n\n# Components\n\nIn the order in which they are installed when all are wanted: first"
        f" {graph.whole().sentence}.\n\n{table}\nHow a component is added, and what each field means:"
        " [../components.md](../components.md).\n"
    )


def page(component: Component) -> str:
    parts = [HEAD, f"# {component.title}", component.summary, _facts(component)]
    if component.values:
        parts += ["## What the catalog sets under every preset", component.values_why, _yaml(dict(component.values))]
    parts.append("## Presets")
    parts += [part for view in presentation.presets(component) for part in _preset(view)]
    if component.decisions:
        parts += ["## Required decisions", _decisions(component)]
    parts += ["## What a change does to running work", _effects(component)]
    parts += ["## Ready when", _readiness(component), "## Caveats"]
    for heading, _, _, hazards in presentation.hazards(component):
        parts += [f"### {heading}", _hazards(hazards)]
    if component.uses:
        parts += ["### What speaks against its removal", _uses(component)]
    if fights := presentation.fights(component):
        parts += ["## Conflicts with", "\n".join(_fights(fights))]
    if component.replaces:
        parts += ["## Takes the place of", "\n".join(_replacements(component))]
    if component.usual:
        rows = [(f"`{path}`", what) for path, what in component.usual.items()]
        parts += ["## Values that people set most", _table(("Key", "What for"), rows).rstrip()]
    for example in component.examples:
        ask = f" Replace before use: {'; '.join(example.ask)}." if example.ask else ""
        parts += [f"## {example.title}", f"{example.why}{ask} ({_cited(example.sources)})", _yaml(dict(example.body))]
    return "\n\n".join(parts) + "\n"


def _facts(component: Component) -> str:
    crds = "leaves its CRDs" if component.crds_stay else "deletes its CRDs and every object of their kinds"
    needs = ", ".join(f"[{name}]({name}.md)" for name in sorted(graph.before(component))) or "nothing"
    rows = [
        ("Name", f"`{component.name}`"),
        ("Chart", f"`{component.chart.reference}`"),
        ("Namespace", f"`{component.namespace}`, Pod Security {component.pod_security}"),
        ("A change disturbs", component.disruption_text),
        ("Comes behind, when wanted", needs),
        ("An uninstall", crds if component.crds else "has no CRDs to leave or delete"),
        ("Steps between versions", component.upgrades.why or "No known versions that must not be skipped."),
        ("Its own documentation", component.documentation),
    ]
    for tested in component.versions:
        remark = ". ".join(filter(None, (f"Kubernetes {tested.kubernetes}" if tested.kubernetes else "", tested.note)))
        rows.append((f"Version `{tested.version}`", f"{remark} ({_cited(tested.sources)})".strip()))
    return _table(("", ""), rows).rstrip()


def _uses(component: Component) -> str:
    subjects = {
        "gpu-pods": "Pods that hold GPUs",
        "objects": "Objects of",
        "no-daemonset": "None of these runs instead:",
    }
    rows = []
    for use in component.uses:
        names = f" {', '.join(f'`{name}`' for name in use.names)}" if use.names else ""
        verb = "blocks" if use.is_block else "warns"
        rows.append((f"{subjects[use.of]}{names}", verb, f"{use.why} ({_cited(use.sources)})"))
    return _table(("While there is", "A plan that removes it", "Why"), rows).rstrip()


def _effects(component: Component) -> str:
    effects = component.effects
    rows = [
        ("A first install", effects.install.worst, effects.install.why),
        ("Removal", effects.remove.worst, effects.remove.why),
    ]
    for change in effects.changes:
        named = f" {', '.join(f'`{name}`' for name in change.names)}" if change.names else ""
        below = f", below {', '.join(f'`{path}`' for path in change.paths)}" if change.paths else ""
        by = " The upgrade controller decides how many nodes at once." if change.controller else ""
        rows.append((f"{change.kind}{named}{below}", change.worst, f"{change.why}{by}"))
    rows.append(("Anything else that can reach a pod", effects.unknown, "The strictest that is plausible."))
    return _table(("What changes", "Class", "Why"), rows).rstrip()


def _preset(view: presentation.PresetView) -> Iterator[str]:
    preset = view.preset
    yield f"### {preset.title}: `{preset.name}`"
    sentences = [preset.why]
    if preset.intents:
        sentences.append(f"For {', '.join(preset.intents)}.")
    if preset.needs:
        sentences.append(f"Only with {', '.join(f'`{name}`' for name in preset.needs)}.")
    if preset.excludes:
        sentences.append(f"Not with {', '.join(f'`{name}`' for name in preset.excludes)}.")
    if preset.requires:
        sentences.append(f"Needs first: {', '.join(f'[{name}]({name}.md)' for name in preset.requires)}.")
    if preset.versions:
        sentences.append(f"Versions: {range_text(preset.versions)}.")
    if preset.kernel:
        sentences.append(f"A plan checks the nodes' kernels: Linux {preset.kernel.removeprefix('>=')} or later.")
    if view.asks:
        sentences.append(f"Asks for {', '.join(f'`{path}`' for path in view.asks)}.")
    yield f"{' '.join(sentences)} ({_cited(preset.sources)})"
    yield f"```yaml\n{view.yaml}```"


def _decisions(component: Component) -> str:
    rows = []
    for decision in component.decisions:
        condition = f"with {' or '.join(f'`{name}`' for name in decision.presets)}" if decision.presets else "always"
        if decision.unless:
            condition += f", unless {' or '.join(f'`{clause}`' for clause in decision.unless)}"
        missing = "nothing is installed" if decision.is_required else "the chart's default applies, with a warning"
        example = f" For example `{decision.example}`." if decision.example else ""
        rows.append((f"`{decision.path}`", f"{decision.question}{example}", condition, missing))
    return _table(("Value", "Question", "Asked", "Without an answer"), rows).rstrip()


def _readiness(component: Component) -> str:
    out = []
    for test in presentation.readiness(component):
        why = f" {test.why}" if test.why else ""
        unless = f" Not asked with `{test.unless}`." if test.unless else ""
        out.append(f"- {test.sentence[0].upper()}{test.sentence[1:]}.{why}{unless}")
    return "\n".join(out)


def _hazards(hazards: Iterable[Hazard]) -> str:
    return "\n".join(
        f"- {hazard.text}{f' ({hazard.since})' if hazard.since else ''} ({_cited(hazard.sources)})"
        for hazard in hazards
    )


def _fights(fights: Iterable[presentation.ConflictView]) -> Iterator[str]:
    for fight in fights:
        how = "blocks" if fight.is_block else "warns"
        settled = (
            f" Settled by {' or '.join(f'`{setting}`' for setting in fight.settled_by)}." if fight.settled_by else ""
        )
        named = f"[{fight.title}]({fight.name}.md)" if fight.name else fight.title
        seen = f" Recognized by {fight.seen_by}." if fight.seen_by else ""
        yield f"- {named} ({how}): {fight.why}{settled}{seen}"


def _replacements(component: Component) -> Iterator[str]:
    for replacement in component.replaces:
        when = " or ".join(f"`{clause}`" for clause in replacement.when)
        needs = ", ".join(f"`{path}`" for path in replacement.needs)
        how = f"[The preset `{replacement.preset}`](../components.md#kube-proxy-where-cilium-does-its-work)"
        yield (
            f"- {replacement.of}, with {when}: {replacement.why} {how} has a plan remove it, and needs {needs}. "
            f"({_cited(replacement.sources)})"
        )


def _cited(sources: Iterable[Citation]) -> str:
    return "; ".join(f"[{source.text}]({source.url})" if source.url else source.text for source in sources)


def _yaml(value: object) -> str:
    return f"```yaml\n{presentation.as_yaml(value)}```"


def _table(heads: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines) + "\n"
