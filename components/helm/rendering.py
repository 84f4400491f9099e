"""A chart rendered for one cluster, as helm would render it there, and a digest that does not depend on chance.

Charts make certificates and passwords while they render (`genCA`, `randAlphaNum`), so the same chart renders otherwise
each time. It is rendered twice: what differs is generated, is masked in the digest and in every diff, and its places
are kept with the plan. Rendered again later with the same places masked, the digest tells whether anything else is
other.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from components.charts import lookups
from components.helm.client import Helm, HelmJob, HelmRefused, UnknownKind, UnreadableObject
from components.values import chart_yaml

GENERATED = "(generated)"
HOOK = "helm.sh/hook"
KEEP = "helm.sh/resource-policy"
MAX_OBJECTS = 5000
_SEPARATOR = re.compile(rb"^---(?=[ \t\r]|$)", re.MULTILINE)
"""As YAML has it: what follows on the same line, a comment or a value, belongs to the document."""
_HEADER = re.compile(rb"\s*# Source: ([^\r\n]+)")
_CRD_HEADER = re.compile(rb"---\n# Source: ([^/\n]+/(?:charts/[^/\n]+/)*crds/[^\n]+)\n")


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object of a release, as the chart wrote it."""

    raw: Mapping[str, Any]
    generated: tuple[str, ...] = ()
    """Places (JSON pointers) that differ from one rendering to the next."""

    @property
    def api_version(self) -> str:
        return str(self.raw.get("apiVersion"))

    @property
    def kind(self) -> str:
        return str(self.raw.get("kind"))

    @property
    def name(self) -> str:
        return str((self.raw.get("metadata") or {}).get("name") or "")

    @property
    def namespace(self) -> str:
        """Namespace as written; empty: the release's own, or none."""
        return str((self.raw.get("metadata") or {}).get("namespace") or "")

    @property
    def annotations(self) -> Mapping[str, Any]:
        return (self.raw.get("metadata") or {}).get("annotations") or {}

    @property
    def is_hook(self) -> bool:
        return HOOK in self.annotations

    @property
    def is_kept(self) -> bool:
        """helm leaves it when it is no longer wanted."""
        return self.annotations.get(KEEP) == "keep"

    @property
    def key(self) -> str:
        return f"{self.api_version}/{self.kind}/{self.namespace}/{self.name}"

    def masked(self) -> dict[str, Any]:
        return with_masks(self.raw, self.generated)


@dataclass(frozen=True, slots=True)
class Rendered:
    objects: tuple[Manifest, ...]
    """What helm installs, upgrades and removes with the release."""
    hooks: tuple[Manifest, ...]
    crds: tuple[Manifest, ...]
    """Of `crds/`: Setpoint creates the missing ones; existing ones are never changed or removed."""
    masked: tuple[str, ...]
    """`<object's key>#<pointer>` of every generated place: what `again` needs."""
    digest: str
    """Over the manifest with these places masked."""
    is_blind: bool = False
    """What its templates look up in the cluster counted as absent: this helm could not ask."""


def render(
    helm: Helm,
    job: HelmJob,
    chart: bytes,
    values: Mapping[str, Any],
    *,
    kube_version: str,
    api_versions: Sequence[str],
    is_upgrade: bool,
) -> Rendered:
    """Twice, at once unless it was rendered to learn how. Raises HelmError."""
    run, text = _Run(helm, job, chart, values, kube_version, tuple(api_versions), is_upgrade).settled()
    with ThreadPoolExecutor(2, thread_name_prefix="render") as pool:
        texts = [text] if text else []
        texts += pool.map(lambda _: run.text(), range(2 - len(texts)))
    first = list(split(texts[0], chart))
    if texts[0] == texts[1]:
        return _rendered(first, {}, run)
    second = list(split(texts[1], chart))
    if [_kind(raw) for raw, _ in first] != [_kind(raw) for raw, _ in second]:
        raise HelmRefused("the chart renders to different objects each time; what it would install cannot be approved")
    places = {
        Manifest(raw).key: tuple(differing(raw, other)) for (raw, _), (other, _) in zip(first, second, strict=True)
    }
    for key, pointers in places.items():
        if "/metadata/name" in pointers or "/metadata/namespace" in pointers:
            raise HelmRefused(f"the chart names {key} by chance; what it would install cannot be approved")
    return _rendered(first, {key: pointers for key, pointers in places.items() if pointers}, run)


def again(
    helm: Helm,
    job: HelmJob,
    chart: bytes,
    values: Mapping[str, Any],
    *,
    kube_version: str,
    api_versions: Sequence[str],
    is_upgrade: bool,
    masked: Sequence[str],
    is_blind: bool = False,
) -> Rendered:
    """Once, with the places masked that were generated when the plan was made. Raises HelmError.

    `is_blind`: without the cluster, as the plan was made, though who asks now may read more or kinds are served by now.
    """
    run = _Run(helm, job, chart, values, kube_version, tuple(api_versions), is_upgrade)
    run, text = (run.blinded() if is_blind else run).settled()
    places: dict[str, tuple[str, ...]] = {}
    for place in masked:
        key, _, pointer = place.partition("#")
        places[key] = (*places.get(key, ()), pointer)
    return _rendered(list(split(text or run.text(), chart)), places, run)


@dataclass(frozen=True, slots=True)
class _Run:
    """Settings that render one chart the same way each time."""

    helm: Helm
    job: HelmJob
    chart: bytes
    values: Mapping[str, Any]
    kube_version: str
    api_versions: tuple[str, ...]
    is_upgrade: bool
    is_blind: bool = False

    def text(self) -> bytes:
        return self.helm.template(
            self.job,
            self.chart,
            self.values,
            kube_version=self.kube_version,
            api_versions=self.api_versions,
            is_upgrade=self.is_upgrade,
        )

    def blinded(self) -> _Run:
        return replace(self, job=replace(self.job, credentials=None), is_blind=True)

    def settled(self) -> tuple[_Run, bytes | None]:
        """Return a run without the cluster where the chart does not ask it, and what it renders if that is known.

        It knows the kinds that are created before helm runs, for which the chart is rendered once.
        """
        run = self
        if not lookups.asks_cluster(self.chart, self.values):
            run = replace(run, job=replace(run.job, credentials=None))
        if run.job.credentials is None and not lookups.has_definitions(self.chart):
            return run, None
        unknown: UnknownKind | None = None
        try:
            text = run.text()
        except (UnknownKind, UnreadableObject) as error:
            unknown = error if isinstance(error, UnknownKind) else None
            run = run.blinded()
            text = run.text()
        brought = (raw for raw, is_crd in split(text, self.chart) if is_crd)
        own = _kinds_of(brought, frozenset(run.api_versions))
        if unknown and not own:
            raise unknown  # nothing makes it known, and helm would refuse as well
        if not own:
            return run, text
        return replace(run, api_versions=tuple(dict.fromkeys((*run.api_versions, *own)))), None


def _kinds_of(definitions: Iterable[Mapping[str, Any]], known: Set[str]) -> list[str]:
    """List, as templates ask for them, the kinds that are missing: they are created before helm renders.

    A kind that exists is served in the versions that the cluster says, which may be other than the chart's.
    """
    groups = {
        (api_version.partition("/")[0], api_version.rpartition("/")[2])
        for api_version in known
        if api_version.count("/") == 2
    }
    out: list[str] = []
    for raw in definitions:
        spec = raw.get("spec") or {}
        kind = (spec.get("names") or {}).get("kind")
        if (spec.get("group"), kind) in groups:
            continue
        for version in spec.get("versions") or ():
            if isinstance(version, Mapping) and version.get("served", True):
                served = f"{spec.get('group')}/{version.get('name')}"
                out += [served, f"{served}/{kind}"]
    return out


def split(text: bytes, chart: bytes = b"") -> Iterator[tuple[dict[str, Any], bool]]:
    """Each object of a manifest, and whether it is of `crds/` of this chart. Raises HelmRefused for what is no object.

    helm copies files of `crds/` as they are, before all templates: real ones begin with `---`, hold many documents, and
    have headers of the template that they were made from. Only the archive tells where such a file ends.
    """
    count = 0
    files, rest = _definitions(text, chart) if chart else ((), text)
    for part, source, is_crd in (*_parts(files, is_crd=True), *_parts([("", rest)], is_crd=False)):
        for raw in _objects(part, source):
            count += 1
            if count > MAX_OBJECTS:
                raise HelmRefused(f"the chart renders to more than {MAX_OBJECTS:,} objects")
            yield raw, is_crd


def _parts(files: Iterable[tuple[str, bytes]], *, is_crd: bool) -> Iterator[tuple[bytes, str, bool]]:
    for source, text in files:
        for part in _SEPARATOR.split(text):
            header = _HEADER.match(part)
            yield part, source or (header[1].decode("utf-8", "replace") if header else ""), is_crd


def _definitions(text: bytes, chart: bytes) -> tuple[list[tuple[str, bytes]], bytes]:
    """The files of `crds/` at the manifest's beginning, each with its path, and what comes behind them."""
    known = lookups.definitions(chart)
    out, at = [], len(text) - len(text.lstrip())
    while (header := _CRD_HEADER.match(text, at)) is not None:
        path, begin = header[1].decode("utf-8", "replace"), header.end()
        same = [data for name, data in known if path.endswith(f"/{name}") and text.startswith(data, begin)]
        if not same:
            raise HelmRefused(f"{path} is rendered otherwise than the archive has it")
        end = begin + max(map(len, same))
        out.append((path, text[begin:end]))
        at = end + len(text[end:]) - len(text[end:].lstrip())
    return out, text[at:]


def _objects(part: bytes, source: str) -> Iterator[dict[str, Any]]:
    try:
        for raw in chart_yaml.documents(part):
            is_object = isinstance(raw, dict) and isinstance(raw.get("kind"), str) and raw.get("apiVersion")
            if not is_object:
                raise HelmRefused(f"{source or 'the manifest'} renders to something that is no Kubernetes object")
            if raw["kind"].endswith("List") and isinstance(raw.get("items"), list):
                yield from (item for item in raw["items"] if isinstance(item, dict))
            else:
                yield raw
    except chart_yaml.BadChartYaml as error:
        raise HelmRefused(f"{source or 'the manifest'} does not render to YAML: {error}") from error


def with_masks(raw: Mapping[str, Any], pointers: Sequence[str], mask: str = GENERATED) -> dict[str, Any]:
    """A copy with these places covered; places that are not there are passed over."""
    copy: dict[str, Any] = json.loads(json.dumps(raw))
    for pointer in pointers:
        *way, last = [part.replace("~1", "/").replace("~0", "~") for part in pointer.split("/")[1:]]
        place: Any = copy
        for part in way:
            place = step(place, part)
        if isinstance(place, dict) and last in place:
            place[last] = mask
        elif isinstance(place, list) and last.isdigit() and int(last) < len(place):
            place[int(last)] = mask
    return copy


def step(place: Any, part: str) -> Any:
    """Return the value below one part of a JSON pointer; None: there is none."""
    if isinstance(place, dict):
        return place.get(part)
    if isinstance(place, list) and part.isdigit() and int(part) < len(place):
        return place[int(part)]
    return None


def _kind(raw: Mapping[str, Any]) -> tuple[object, object]:
    return raw.get("apiVersion"), raw.get("kind")


def differing(first: Any, other: Any, pointer: str = "") -> Iterator[str]:
    """Pointers of the smallest places in which two values differ."""
    if isinstance(first, dict) and isinstance(other, dict) and first.keys() == other.keys():
        for key in first:
            yield from differing(first[key], other[key], f"{pointer}/{key.replace('~', '~0').replace('/', '~1')}")
    elif isinstance(first, list) and isinstance(other, list) and len(first) == len(other):
        for index, (left, right) in enumerate(zip(first, other, strict=True)):
            yield from differing(left, right, f"{pointer}/{index}")
    elif first != other:
        yield pointer


def _rendered(
    raws: Sequence[tuple[dict[str, Any], bool]], places: Mapping[str, tuple[str, ...]], run: _Run
) -> Rendered:
    made = [(Manifest(raw, places.get(Manifest(raw).key, ())), is_crd) for raw, is_crd in raws]
    masked = [manifest.masked() for manifest, _ in made]
    text = json.dumps(masked, sort_keys=True, separators=(",", ":"))
    return Rendered(
        objects=tuple(manifest for manifest, is_crd in made if not is_crd and not manifest.is_hook),
        hooks=tuple(manifest for manifest, is_crd in made if not is_crd and manifest.is_hook),
        crds=tuple(manifest for manifest, is_crd in made if is_crd),
        masked=tuple(f"{key}#{pointer}" for key, pointers in places.items() for pointer in pointers),
        digest=f"sha256:{hashlib.sha256(text.encode()).hexdigest()}",
        is_blind=run.is_blind,
    )
