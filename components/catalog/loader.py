"""A component's YAML, of a file or of a site's own entry, read strictly: every mistake is a BadCatalog that names file,
line and path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from common import yaml
from components.catalog import effects_reader, kernels, text_values
from components.catalog.effects import UNCLASSIFIED
from components.catalog.entry import (
    DISRUPTIONS,
    INTENTS,
    NODES,
    POD_SECURITY,
    TEST_KINDS,
    USES,
    WORKLOADS,
    ChartReference,
    Component,
    ComponentConflict,
    ComponentUse,
    Decision,
    Example,
    Hazard,
    Preset,
    ReadinessTest,
    WorkloadPattern,
)
from components.catalog.replacements import REPLACEABLE, Replacement
from components.catalog.versions import UPGRADE_RULES, Citation, Tested, Upgrades, bounds
from components.catalog.yaml_reader import BadCatalog, YamlMapping

NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,51}[a-z0-9])?")
"""A component's name is its release's too: helm takes at most 53 characters."""
_HOST = re.compile(r"[a-z0-9-]+(\.[a-z0-9-]+)+")
_MINOR = re.compile(r"1\.[0-9]{1,3}")
_VERSION = re.compile(r"v?[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.-]+)?")
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_CHART = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*([./][A-Za-z0-9_-]+)*")
LONGEST_VERSION = 60
"""Characters: what rows of plans and of compliance keep."""
LONGEST_CHART = 250
LONGEST_TITLE = 80
LONGEST_SUMMARY = 400
"""Lists show both whole."""

_WORDS: Mapping[str, tuple[set[str], set[str]]] = {
    "workloads": ({"namespace"}, {"kind", "names", "selector"}),
    "field": ({"apiVersion", "kind", "name", "path", "equals"}, {"namespace", "reads"}),
    "taint_absent": ({"key"}, set()),
    "allocatable": ({"resource", "nodes", "at_least"}, set()),
    "crds": ({"names"}, set()),
}
"""(must have, may have) of each kind of readiness test."""


def read(path: Path) -> Component:
    """The component that this file describes. Raises BadCatalog."""
    return parse(path.read_bytes(), file=path.name, name=path.stem)


def parse(text: str | bytes, *, file: str, name: str = "") -> Component:
    """The component that this text describes; `name`: the only one that will do. Raises BadCatalog."""
    try:
        document = yaml.load(text)
    except yaml.BadYaml as error:
        raise BadCatalog(f"{file}, {error}") from error
    if not isinstance(document.data, dict):
        raise BadCatalog(f"{file}, line 1: must be a mapping")
    sources = _sources(YamlMapping(file, document, (), {}))
    whole = YamlMapping(file, document, (), sources)
    whole.taken.add("sources")
    component = _component(whole)
    whole.done()
    if name and component.name != name:
        raise whole.bad(f"{component.name!r} must be called like its file, {name!r}", "name")
    _agrees_with_itself(whole, component)
    return component


def _sources(whole: YamlMapping) -> dict[str, Citation]:
    out: dict[str, Citation] = {}
    for key, part in whole.named_parts("sources").items():
        # Pages make a link of it: with another scheme, one that runs in the reader's session.
        out[key] = Citation(part.text("text"), _url(part, "url", is_page=True) if part.raw.get("url") else "")
        part.taken.add("url")
        part.done()
    return out


def _component(whole: YamlMapping) -> Component:
    name = whole.text("name")
    if not NAME.fullmatch(name) or name == NODES:
        raise whole.bad("must be at most 53 of a-z, 0-9 and -, and begin and end with a letter or digit", "name")
    crds, hazards = whole.part("crds"), whole.part("hazards")
    component = Component(
        name=name,
        title=_short(whole, "title", LONGEST_TITLE),
        summary=_short(whole, "summary", LONGEST_SUMMARY),
        documentation=_url(whole, "documentation"),
        chart=_chart(whole.part("chart")),
        versions=tuple(_tested(part) for part in whole.parts("versions", at_least=1)),
        namespace=_namespace(whole),
        pod_security=whole.text("pod_security", one_of=POD_SECURITY),
        disruption=whole.text("disruption", one_of=tuple(DISRUPTIONS)),
        values=whole.mapping("values"),
        values_why=whole.text("values_why", ""),
        requires=whole.texts("requires"),
        after=whole.texts("after"),
        conflicts=tuple(_conflict(part) for part in whole.parts("conflicts")),
        replaces=tuple(_replacement(part) for part in whole.parts("replaces")),
        presets=_presets(whole),
        decisions=tuple(_decision(part) for part in whole.parts("decisions")),
        readiness=tuple(_test(part) for part in whole.parts("readiness", at_least=1)),
        upgrades=_upgrades(whole.part("upgrades")) if "upgrades" in whole.raw else Upgrades(),
        upgrade_hazards=tuple(_upgrade_hazard(part) for part in hazards.parts("upgrade", at_least=1)),
        removal_hazards=tuple(_hazard(part) for part in hazards.parts("removal", at_least=1)),
        running_hazards=tuple(_hazard(part) for part in hazards.parts("running")),
        uses=tuple(_use(part) for part in whole.parts("uses")),
        crds=crds.texts("names"),
        crds_stay=crds.flag("stay", default=True),
        effects=effects_reader.read(whole.part("blast")) if "blast" in whole.raw else UNCLASSIFIED,
        examples=tuple(_example(part) for part in whole.parts("examples")),
        usual=whole.pairs("usual"),
        open_paths=whole.texts("open"),
        also_known=whole.texts("also_known"),
        texts=whole.pairs("texts"),
        no_effect=whole.pairs("no_effect"),
    )
    hazards.done()
    crds.done()
    return component


def _use(part: YamlMapping) -> ComponentUse:
    use = ComponentUse(
        of=part.text("of", one_of=USES),
        why=part.text("why"),
        names=part.texts("names"),
        is_block=part.flag("block", default=False),
        sources=part.cited(at_least=1),
    )
    if (use.of == "gpu-pods") == bool(use.names):
        raise part.bad("names definitions or DaemonSets, and none for gpu-pods", "names")
    part.done()
    return use


def _short(part: YamlMapping, name: str, most: int) -> str:
    text = part.text(name)
    if len(text) > most:
        raise part.bad(f"is {len(text):,} characters long; at most {most} are shown", name)
    return text


def _namespace(part: YamlMapping) -> str:
    text = part.text("namespace")
    if not _NAMESPACE.fullmatch(text):
        raise part.bad("must be at most 63 of a-z, 0-9 and -, and begin and end with a letter or digit", "namespace")
    return text


def _url(part: YamlMapping, name: str, schemes: tuple[str, ...] = ("https",), *, is_page: bool = False) -> str:
    """`is_page`: of a web page, which may end with a slash."""
    url = part.text(name)
    try:
        parts = urlsplit(url)
        is_address = parts.scheme in schemes and bool(parts.hostname) and url.isprintable()
    except ValueError:  # such as a bracket in the host
        is_address = False
    if not is_address or (url.endswith("/") and not is_page):
        end = "" if is_page else ", without a slash at its end"
        raise part.bad(f"must be an address of {' or '.join(schemes)}{end}", name)
    return url


def _chart(part: YamlMapping) -> ChartReference:
    kind = part.text("kind", one_of=("http", "oci"))
    url = _url(part, "url", ("oci",) if kind == "oci" else ("https",))
    chart = ChartReference(kind, url, part.text("chart"), part.texts("hosts"))
    if len(chart.chart) > LONGEST_CHART or not _CHART.fullmatch(chart.chart):
        raise part.bad("must be the name of a chart, such as cert-manager, or of one in a folder: team/tool", "chart")
    for index, host in enumerate(chart.hosts):
        if not _HOST.fullmatch(host):
            raise part.bad(f"{host!r} is not the name of a host", "hosts", index)
    part.done()
    return chart


def _tested(part: YamlMapping) -> Tested:
    version = part.text("version")
    if len(version) > LONGEST_VERSION or not _VERSION.fullmatch(version):
        raise part.bad(f"{version!r} is not a version such as 1.20.0 or v1.2.3-rc.1", "version")
    low, high = part.text("kubernetes_from", ""), part.text("kubernetes_to", "")
    for name, bound in (("kubernetes_from", low), ("kubernetes_to", high)):
        if bound and not _MINOR.fullmatch(bound):
            raise part.bad(f"{bound!r} is not a minor version such as 1.33", name)
    tested = Tested(version, low, high, part.text("note", ""), part.cited())
    part.done()
    return tested


def _presets(whole: YamlMapping) -> dict[str, Preset]:
    """Excluding is mutual, whichever of both says so."""
    presets = {name: _preset(name, part) for name, part in whole.named_parts("presets").items()}
    for name, preset in presets.items():
        others = [other.name for other in presets.values() if name in other.excludes]
        presets[name] = replace(preset, excludes=tuple(dict.fromkeys((*preset.excludes, *others))))
    return presets


def _preset(name: str, part: YamlMapping) -> Preset:
    if not NAME.fullmatch(name):
        raise part.bad("a preset's name is of a-z, 0-9 and -")
    preset = Preset(
        name=name,
        title=part.text("title"),
        why=part.text("why"),
        values=part.mapping("values"),
        intents=part.texts("intents", known=INTENTS),
        excludes=part.texts("excludes"),
        requires=part.texts("requires"),
        needs=part.texts("needs"),
        versions=_versions(part, "versions"),
        kernel=part.text("kernel", ""),
        sources=part.cited(at_least=1),
    )
    if preset.kernel and not kernels.NEED.fullmatch(preset.kernel):
        raise part.bad(f"{preset.kernel!r} is not a kernel need such as '>=6.8'", "kernel")
    if not preset.values:
        raise part.bad("sets nothing: values is missing")
    part.done()
    return preset


def _decision(part: YamlMapping) -> Decision:
    decision = Decision(
        path=part.text("path"),
        question=part.text("question"),
        presets=part.texts("presets"),
        unless=part.clauses("unless"),
        is_required=part.flag("required", default=True),
        example=part.text("example", ""),
        sources=part.cited(at_least=1),
    )
    part.done()
    return decision


def _conflict(part: YamlMapping) -> ComponentConflict:
    conflict = ComponentConflict(
        other=part.text("with", ""),
        why=part.text("why"),
        title=part.text("title", ""),
        workloads=_pattern(part.part("workloads")) if "workloads" in part.raw else None,
        is_block=part.flag("block", default=True),
        unless=part.clauses("unless"),
        unless_other=part.clauses("unless_other"),
        sources=part.cited(at_least=1),
    )
    part.done()
    if bool(conflict.other) == bool(conflict.title):
        raise part.bad("must have either `with`, a component, or `title`, what the catalog does not install")
    if conflict.title and (conflict.workloads is None or conflict.unless_other):
        raise part.bad("with a title must have workloads, and no unless_other", "title")
    return conflict


def _replacement(part: YamlMapping) -> Replacement:
    replacement = Replacement(
        of=part.text("of", one_of=REPLACEABLE),
        preset=part.text("preset"),
        why=part.text("why"),
        when=part.clauses("when"),
        needs=part.pairs("needs"),
        sources=part.cited(at_least=1),
    )
    if not replacement.when:
        raise part.bad("must name values with which the component does this work", "when")
    part.done()
    return replacement


def _pattern(part: YamlMapping) -> WorkloadPattern:
    pattern = WorkloadPattern(part.text("kind", one_of=WORKLOADS), part.texts("names"), part.texts("namespaces"))
    if not pattern.names:
        raise part.bad("must be a list of names", "names")
    part.done()
    return pattern


def _test(part: YamlMapping) -> ReadinessTest:
    kinds = [kind for kind in TEST_KINDS if kind in part.raw]
    if len(kinds) != 1:
        raise part.bad(f"must have exactly one of {', '.join(TEST_KINDS)}")
    kind = kinds[0]
    what = {"key": part.text(kind)} if kind == "taint_absent" else part.mapping(kind)
    must, may = _WORDS[kind]
    if missing := sorted(must - {*map(str, what)}):
        raise part.bad(f"{missing[0]} is missing", kind)
    if unknown := sorted({*map(str, what)} - must - may):
        raise part.bad(f"unknown; known here are {', '.join(sorted(must | may))}", kind, unknown[0])
    if kind == "workloads" and ("names" in what) == ("selector" in what):
        raise part.bad("must have either names or selector", kind)
    for name in ("reads", "at_least"):
        number = what.get(name, 1)
        if type(number) is not int or number < 1:
            raise part.bad("must be a whole number of 1 or more", kind, name)
    if "names" in what and not (isinstance(what["names"], list) and what["names"]):
        raise part.bad("must be a list of names", kind, "names")
    if kind == "field" and what["kind"] == "Secret":
        raise part.bad("must not be a Secret: what a test sees is shown", kind, "kind")
    test = ReadinessTest(kind, what, part.text("why", ""), part.flag("optional", default=False), part.clauses("unless"))
    part.done()
    return test


def _upgrades(part: YamlMapping) -> Upgrades:
    rule = part.text("rule", one_of=UPGRADE_RULES)
    upgrades = Upgrades(rule, part.texts("lines"), part.text("why"), part.cited(at_least=1))
    if (rule == "lines") != bool(upgrades.lines):
        raise part.bad("the rule `lines`, and no other, needs a list of lines", "rule")
    part.done()
    return upgrades


def _upgrade_hazard(part: YamlMapping) -> Hazard:
    hazard = Hazard(
        part.text("text"), part.cited(at_least=1), before=_versions(part, "from"), after=_versions(part, "to")
    )
    part.done()
    return hazard


def _hazard(part: YamlMapping) -> Hazard:
    hazard = Hazard(part.text("text"), part.cited(at_least=1), of=_versions(part, "of"))
    part.done()
    return hazard


def _versions(part: YamlMapping, key: str) -> str:
    """Return a range of versions. Raises the entry's error for what is none."""
    text = part.text(key, "")
    try:
        bounds(text)
    except ValueError as error:
        raise part.bad(str(error), key) from error
    return text


def _example(part: YamlMapping) -> Example:
    body = part.mapping("body")
    if not all(isinstance(body.get(name), str) for name in ("apiVersion", "kind")):
        raise part.bad("must be a Kubernetes object with apiVersion and kind", "body")
    example = Example(part.text("title"), part.text("why"), body, part.texts("ask"), part.cited(at_least=1))
    part.done()
    return example


def _agrees_with_itself(whole: YamlMapping, component: Component) -> None:
    """Check that presets that others name exist, that no version is listed twice, and that no component names itself.

    A component may neither need nor conflict with itself.
    """
    versions = [known.version for known in component.versions]
    if len({*versions}) != len(versions):
        raise whole.bad("names a version twice", "versions")
    for name, preset in component.presets.items():
        for index, other in enumerate(preset.excludes):
            if other not in component.presets or other == name:
                raise whole.bad(f"there is no other preset {other!r}", "presets", name, "excludes", index)
        for index, other in enumerate(preset.needs):
            if other not in component.presets or other == name:
                raise whole.bad(f"there is no other preset {other!r}", "presets", name, "needs", index)
            if other in preset.excludes:
                raise whole.bad(f"{other!r} is excluded by the same preset", "presets", name, "needs", index)
    for index, replacement in enumerate(component.replaces):
        if replacement.preset not in component.presets:
            raise whole.bad(f"there is no preset {replacement.preset!r}", "replaces", index, "preset")
    for index, decision in enumerate(component.decisions):
        if wrong := {*decision.presets} - {*component.presets}:
            raise whole.bad(f"there is no preset {min(wrong)!r}", "decisions", index, "presets")
    for path, text in component.texts.items():
        if text_values.parsed(text) is None:
            raise whole.bad("must be the YAML text of a mapping", "texts", path)
    for part in ("requires", "after"):
        if component.name in getattr(component, part):
            raise whole.bad("must not name the component itself", part)
    for index, conflict in enumerate(component.conflicts):
        if conflict.other == component.name:
            raise whole.bad("must not name the component itself", "conflicts", index)
