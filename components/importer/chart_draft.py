"""Draft of a site's catalog entry from a chart archive: what the chart renders to tells what is known of it.

The archive is rendered by helm without a cluster, under two names of a release, so that names that follow the
release's are told from fixed ones. A value that the chart demands becomes a decision. What a chart cannot tell, how it
touches running work above all, is left for a person, and said.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import yaml

from common.errors import Invalid
from components.catalog import loader
from components.catalog.catalog import BadCatalog
from components.catalog.entry import WORKLOADS, ReleasePlace, full_name
from components.charts import archives
from components.helm import client, rendering
from components.helm.client import HelmError, HelmJob, HelmRefused
from components.helm.rendering import Manifest
from components.importer import pod_level
from components.values import chart_yaml
from components.values.clauses import look_up

SECONDS = 60.0
"""For every rendering of one archive together."""
KUBERNETES = "v1.34.0"
"""What it is rendered for: a version that every chart of the catalog takes."""
MOST_DECISIONS = 12
UNPUBLISHED = "https://unpublished.invalid"
"""Of a chart that no repository has: a name that never resolves, so that its uploaded archive alone will do."""
LONGEST_URL = 500
STAND_IN = "example"
_OTHER = "zq7"
"""A second name of a release, which no chart's own names have in them."""
_SOURCE = "CHART"
_DOTTED = re.compile(r"(?:\.Values|[Vv]alues)?\.?([A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)*)")
_REQUIRED = re.compile(r"missing propert(?:y|ies) '([^']+)'|\(root\): (\S+) is required|(\S+): (\S+) is required")
_LOWEST = re.compile(r"\s*>=?\s*v?1\.(\d{1,3})")
_CLUSTER_SCOPED = frozenset(
    ("APIService", "ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "CSIDriver", "DeviceClass",
     "IngressClass", "MutatingWebhookConfiguration", "Namespace", "PersistentVolume", "PriorityClass", "RuntimeClass",
     "StorageClass", "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding", "ValidatingWebhookConfiguration")
)  # fmt: skip
_WEBHOOKS = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")


@dataclass(frozen=True, slots=True)
class EntryDraft:
    text: str
    """YAML that the catalog's schema accepts."""
    notes: tuple[str, ...]
    """What a person must complete or read, one sentence each."""


@dataclass(frozen=True, slots=True)
class _ChartRendering:
    """A chart with the values that it demands, rendered under both names."""

    name: str
    chart: archives.ChartContent
    demanded: Mapping[str, str]
    """By path, what the chart said when the value was missing."""
    own: tuple[Manifest, ...]
    other: tuple[Manifest, ...]
    from_folder: frozenset[str]
    """Definitions of `crds/`, which stay when the release goes."""

    def of_kinds(self, *kinds: str) -> list[Manifest]:
        return [manifest for manifest in self.own if manifest.kind in kinds]


def draft(content: bytes, *, url: str = "") -> EntryDraft:
    """Write an entry for this archive. `url`: the repository that has the chart.

    Raises BadArchive, Invalid, HelmError.
    """
    chart = archives.judge(content)
    about = chart_yaml.load(archives.files(content)["Chart.yaml"])
    made = _rendered(content, chart)
    document = _document(made, about if isinstance(about, Mapping) else {}, url)
    if not document["readiness"]:
        raise Invalid(
            f"{chart.name} {chart.version} renders neither a workload nor a definition with its own values: by what it "
            "is ready cannot be told. Write its entry by hand."
        )
    text = yaml.safe_dump(document, sort_keys=False, allow_unicode=True, width=120)
    try:
        loader.parse(text, file="draft")
    except BadCatalog as error:
        raise Invalid(f"No entry can be drafted from {chart.name} {chart.version}: {error}") from error
    return EntryDraft(text, tuple(_notes(made, document)))


def from_archive(sha256: str, *, url: str = "") -> EntryDraft:
    """Draft an entry from a stored archive. Raises Missing, BadArchive, Invalid, HelmError."""
    if len(url) > LONGEST_URL:
        raise Invalid("The address is too long.", fields={"url": [f"At most {LONGEST_URL} characters."]})
    return draft(archives.content(sha256), url=url)


# ── Rendering ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def _rendered(content: bytes, chart: archives.ChartContent) -> _ChartRendering:
    name = re.sub(r"[^a-z0-9]+", "-", chart.name.lower()).strip("-")[:53].strip("-") or "chart"
    until = time.monotonic() + SECONDS
    values: dict[str, Any] = {}
    demanded: dict[str, str] = {}
    while True:
        try:
            own, folder = _objects(content, name, name, values, until)
            break
        except HelmRefused as error:
            path = _demanded_path(str(error), chart.values)
            if not path or path in demanded or len(demanded) >= MOST_DECISIONS:
                raise Invalid(
                    f"{chart.name} {chart.version} does not render with its own values"
                    f"{' and ' + ', '.join(demanded) if demanded else ''}: {error}"
                ) from error
            demanded[path] = str(error)
            _put(values, path.split("."), _stand_in(chart.values, path))
    try:
        other, _ = _objects(content, _OTHER, name, values, until)
    except HelmError:
        other = own  # names then count as fixed
    return _ChartRendering(name, chart, demanded, own, other, folder)


def _objects(
    content: bytes, release: str, namespace: str, values: Mapping[str, Any], until: float
) -> tuple[tuple[Manifest, ...], frozenset[str]]:
    job = HelmJob(release, namespace, deadline=until)
    text = client.program().template(job, content, values, kube_version=KUBERNETES)
    parts = [(Manifest(raw), is_crd) for raw, is_crd in rendering.split(text, content)]
    return tuple(each for each, _ in parts), frozenset(each.name for each, is_crd in parts if is_crd)


def _demanded_path(message: str, values: Mapping[str, Any]) -> str:
    """Return the path of the value that an error asks for; empty where it names none."""
    if match := _REQUIRED.search(message):
        below, key = (match[3], match[4]) if match[4] else ("", match[1] or match[2])
        return ".".join(part for part in (below.replace("(root)", ""), key) if part).strip("./")
    words = [match[1] for match in _DOTTED.finditer(message.partition(" (")[0])]
    named = [word for word in words if "." in word and word.split(".")[0] in values]
    return max(named, key=len, default="") or next((w for w in words if f".Values.{w}" in message), "")


def _stand_in(values: Mapping[str, Any], path: str) -> Any:
    """Return a value to render with: a switch that a chart complains of is turned."""
    default = look_up(values, path)
    return not default if isinstance(default, bool) else STAND_IN


def _put(values: dict[str, Any], path: Sequence[str], value: Any) -> None:
    for part in path[:-1]:
        below = values.get(part)
        values = values.setdefault(part, {}) if isinstance(below, dict) or below is None else {}
    values[path[-1]] = value


# ── What it says ──────────────────────────────────────────────────────────────────────────────────────────────────────
def _document(made: _ChartRendering, about: Mapping[str, Any], url: str) -> dict[str, Any]:
    chart = made.chart
    definitions = sorted({each.name for each in made.of_kinds("CustomResourceDefinition")})
    stay = all(each.is_kept or each.name in made.from_folder for each in made.of_kinds("CustomResourceDefinition"))
    title = re.sub(r"[-_.]+", " ", chart.name).title()[: loader.LONGEST_TITLE]
    summary = " ".join(str(about.get("description") or f"The chart {chart.name}.").split())
    return {
        "name": made.name,
        "title": title,
        "summary": summary[: loader.LONGEST_SUMMARY],
        "documentation": _page(about),
        "chart": {"kind": "oci" if url.startswith("oci:") else "http", "url": url or UNPUBLISHED, "chart": chart.name},
        "sources": {_SOURCE: {"text": f"The chart {chart.name} {chart.version}, rendered with its own values"}},
        "versions": [{"version": chart.version, **_lowest(chart.kubernetes), "sources": [_SOURCE]}],
        "namespace": made.name,
        "pod_security": pod_level.level(each.raw for each in made.own),
        "disruption": _disruption(made),
        "crds": {"names": definitions, "stay": stay},
        **({"decisions": _decisions(made)} if made.demanded else {}),
        "readiness": _readiness(made, definitions),
        "hazards": _hazards(made, definitions, stay=stay),
    }


def _page(about: Mapping[str, Any]) -> str:
    sources = about.get("sources")
    named = [about.get("home"), *(sources if isinstance(sources, list) else ())]
    pages = (str(each).strip().rstrip("/") for each in named)
    return next((page for page in pages if page.startswith("https://") and urlsplit(page).hostname), UNPUBLISHED)


def _lowest(kubernetes: str) -> dict[str, str]:
    match = _LOWEST.match(kubernetes)
    return {"kubernetes_from": f"1.{match[1]}"} if match else {}


def _disruption(made: _ChartRendering) -> str:
    if made.of_kinds(*_WEBHOOKS):
        return "scheduling"
    return "restarts-daemonset" if made.of_kinds("DaemonSet") else "live"


def _decisions(made: _ChartRendering) -> list[dict[str, Any]]:
    return [
        {"path": path, "question": f"The chart demands it: {message}", "sources": [_SOURCE]}
        for path, message in made.demanded.items()
    ]


def _readiness(made: _ChartRendering, definitions: Sequence[str]) -> list[dict[str, Any]]:
    tests: list[dict[str, Any]] = [{"crds": {"names": list(definitions)}}] if definitions else []
    there: dict[tuple[str, str], list[str]] = {}
    for each in made.own:
        replicas = (each.raw.get("spec") or {}).get("replicas")
        if each.kind in WORKLOADS and not each.is_hook and replicas != 0:
            place = "{namespace}" if each.namespace in ("", made.name) else each.namespace
            there.setdefault((each.kind, place), []).append(_named(each, made))
    for (kind, place), names in there.items():
        tests.append({"workloads": {"namespace": place, "kind": kind, "names": sorted(set(names))}})
    return tests


def _named(workload: Manifest, made: _ChartRendering) -> str:
    """Return the name as it follows the release's: with a placeholder where the other rendering has another name."""
    others = {each.name for each in made.other if each.kind == workload.kind}
    name = workload.name
    if name in others:
        return name
    place = _place(made.name, made)
    for mark, own in (("{fullname}", place.fullname), ("{release}", place.release)):
        template = name.replace(own, mark, 1)
        if template != name and _place(_OTHER, made).filled(template) in others:
            return template
    return name


def _place(release: str, made: _ChartRendering) -> ReleasePlace:
    return ReleasePlace(release, made.name, full_name(release, made.chart.name, made.chart.values))


def _hazards(made: _ChartRendering, definitions: Sequence[str], *, stay: bool) -> dict[str, Any]:
    if not definitions:
        removal = "Its objects go with the release; what they keep elsewhere is not known."
    elif stay:
        removal = "Its definitions stay, and so do the objects of their kinds, which nothing serves any more."
    else:
        removal = "Definitions go with the release, and with them every object of their kinds."
    texts: dict[str, list[str]] = {"upgrade": ["What an upgrade asks for is in the notes of the chart's makers."]}
    texts["removal"] = [removal]
    texts["running"] = list(_running(made))
    return {when: [{"text": text, "sources": [_SOURCE]} for text in every] for when, every in texts.items() if every}


def _running(made: _ChartRendering) -> Iterator[str]:
    kinds = sorted({each.kind for each in made.own if _is_cluster_scoped(each, made)})
    if kinds:
        yield f"It has objects of the whole cluster: {', '.join(kinds)}."
    if wide := sorted({each.name for each in made.of_kinds("ClusterRole") if _is_wide(each.raw)}):
        yield f"It may do everything to some kinds, or read every Secret, by ClusterRole {', '.join(wide)}."
    if failing := sorted({each.name for each in made.of_kinds(*_WEBHOOKS) if _fails_closed(each.raw)}):
        yield f"While its server is away, requests that pass {', '.join(failing)} are refused."
    if hooks := sorted({f"{each.kind} {each.name} ({each.annotations[rendering.HOOK]})" for each in _hooks(made.own)}):
        yield f"helm runs hooks of the chart: {', '.join(hooks)}."


def _hooks(manifests: Iterable[Manifest]) -> list[Manifest]:
    return [each for each in manifests if each.is_hook and "test" not in str(each.annotations[rendering.HOOK])]


def _is_cluster_scoped(manifest: Manifest, made: _ChartRendering) -> bool:
    if manifest.kind in _CLUSTER_SCOPED:
        return True
    specs = (each.raw.get("spec") or {} for each in made.of_kinds("CustomResourceDefinition"))
    kinds = {(spec.get("names") or {}).get("kind") for spec in specs if spec.get("scope") == "Cluster"}
    return manifest.kind in kinds


def _is_wide(role: Mapping[str, Any]) -> bool:
    for rule in role.get("rules") or ():
        verbs, resources = {*(rule.get("verbs") or ())}, {*(rule.get("resources") or ())}
        is_everything = "*" in verbs or "*" in resources
        reads_secrets = "secrets" in resources and bool(verbs & {"get", "list", "watch"})
        if is_everything or (reads_secrets and not rule.get("resourceNames")):
            return True
    return False


def _fails_closed(configuration: Mapping[str, Any]) -> bool:
    webhooks = configuration.get("webhooks") or ()
    return any(isinstance(each, Mapping) and each.get("failurePolicy", "Fail") == "Fail" for each in webhooks)


def _notes(made: _ChartRendering, document: Mapping[str, Any]) -> Iterator[str]:
    yield "It states no effects: until `blast:` is written, every change counts as a drain, also once it is classified."
    yield "Presets, conflicts and the hazards of an upgrade are not in a chart: write what the site knows."
    for path in made.demanded:
        yield f"The chart does not render without {path}: it is a decision of the entry; check its question."
    if document["chart"]["url"] == UNPUBLISHED:
        yield "No repository was named: only the uploaded archive will do. Put the chart's address into `chart.url`."
    if document["documentation"] == UNPUBLISHED:
        yield "The chart names no page of its makers: put one into `documentation`."
    if not any("workloads" in test for test in document["readiness"]):
        yield "With its own values it has no workload: it counts as ready by its definitions alone."
