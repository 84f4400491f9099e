"""Chart archives: judged before a byte of them is stored or given to helm, kept by the SHA-256 of their bytes.

An archive is what another party packed. Nothing is ever unpacked to a disk: it is read as a stream, within the limits
that helm itself has, so that what is accepted here helm can read too.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import tarfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from common.errors import Invalid, Missing
from components.models import Archive
from components.values import chart_yaml

MAX_PACKED = 10 * 1024 * 1024
MAX_UNPACKED = 64 * 1024 * 1024
MAX_FILE = 5 * 1024 * 1024
"""Bytes of one file: helm's own limit."""
MAX_FILES = 5000
MAX_NESTED = 3
"""Archives within archives: a subchart of a subchart of a subchart."""
_CHUNK = 256 * 1024

_NAME = re.compile(r"[a-zA-Z0-9][a-zA-Z0-9._-]{0,249}")
_VERSION = re.compile(
    r"v?(0|[1-9]\d*)(\.(0|[1-9]\d*)){0,2}(-[0-9A-Za-z.-]+)?(\+[0-9A-Za-z.-]+)?",
)
_DIGEST = re.compile(r"[0-9a-f]{64}")
_SUBCHART = re.compile(r"charts/[^/]+\.t(?:ar\.)?gz")
_SUBCHART_FILE = re.compile(r"charts/[^/]+/Chart\.yaml")
_FILES = (tarfile.REGTYPE, tarfile.AREGTYPE)


class BadArchive(Invalid):
    """An archive that may not be installed as a chart; `fields` names the part: `archive`, or a file's path."""

    def __init__(self, reason: str, *, field: str = "archive") -> None:
        super().__init__(f"{field}: {reason}", fields={field: [reason]})
        self.reason = reason


@dataclass(frozen=True, slots=True)
class ChartContent:
    """Contents of a chart archive, as far as Setpoint reads them."""

    name: str
    version: str
    app_version: str
    kubernetes: str
    """The range of Kubernetes versions its makers permit (`kubeVersion`); empty: all."""
    values: Mapping[str, Any]
    """values.yaml: its defaults, and the keys it knows."""
    schema: Mapping[str, Any] | None
    """values.schema.json."""
    crds: Mapping[str, str] = field(default_factory=dict)
    """Text by path of each file in `crds/`, of subcharts too, unless those are packed themselves."""
    sha256: str = ""
    values_text: str = ""
    """values.yaml as its makers wrote it: a key in a comment is one that a template may read."""
    subcharts: tuple[str, ...] = ()
    """Names, or aliases, of its dependencies: their values stand below these keys, and it need not list them."""


def judge(content: bytes, *, name: str = "", version: str = "", sha256: str = "") -> ChartContent:
    """Read and judge an archive; a given name, version or SHA-256 must match.

    Raises BadArchive; never anything else, for any bytes.
    """
    if len(content) > MAX_PACKED:
        raise BadArchive(f"is {len(content):,} bytes long; at most {MAX_PACKED:,} are accepted")
    actual = hashlib.sha256(content).hexdigest()
    if sha256 and actual != sha256:
        raise BadArchive(f"its SHA-256 is {actual}, not {sha256}: it is another archive than the one that was approved")
    files = _read(content, _Budget())
    chart = _chart(files, actual)
    if name and chart.name != name:
        raise BadArchive(f"is {chart.name!r}, not {name!r}", field="Chart.yaml: name")
    if version and chart.version.removeprefix("v") != version.removeprefix("v"):
        raise BadArchive(f"is {chart.version!r}, not {version!r}", field="Chart.yaml: version")
    return chart


def files(content: bytes) -> dict[str, bytes]:
    """Content by path, packed subcharts included as `charts/<archive>/<path>`. Raises BadArchive."""
    return dict(_flat(_read(content, budget := _Budget()), budget))


def _flat(unpacked: Mapping[str, bytes], budget: _Budget) -> Iterator[tuple[str, bytes]]:
    for path, data in unpacked.items():
        if _SUBCHART.fullmatch(path):
            inner = _read(data, budget, 1).items()
            yield from ((f"{path}/{below}", inner_data) for below, inner_data in _flat(dict(inner), budget))
        else:
            yield path, data


def store(
    content: bytes,
    *,
    origin: str,
    fetched_from: str = "",
    by: str = "",
    authors: Sequence[int] = (),
    name: str = "",
    version: str = "",
    sha256: str = "",
) -> Archive:
    """Judged and kept; one that is kept already is answered as it is. Raises BadArchive."""
    chart = judge(content, name=name, version=version, sha256=sha256)
    archive, _ = Archive.objects.get_or_create(
        sha256=chart.sha256,
        defaults={
            "name": chart.name,
            "version": chart.version,
            "app_version": chart.app_version,
            "size": len(content),
            "content": content,
            "origin": origin[:600],
            "fetched_from": fetched_from[:600],
            "stored_by": by[:150],
            "authors": list(authors),
        },
    )
    return archive


def content(sha256: str) -> bytes:
    """The stored bytes, checked against their name. Raises Missing, BadArchive when the database holds others."""
    archive = Archive.objects.filter(sha256=sha256).first() if _DIGEST.fullmatch(sha256) else None
    if archive is None:
        raise Missing(f"The chart archive {sha256[:80]} is not stored here.")
    data = bytes(archive.content)
    if hashlib.sha256(data).hexdigest() != sha256:
        raise BadArchive(f"the stored archive {sha256} was changed in the database; store it again")
    return data


# ── Reading ───────────────────────────────────────────────────────────────────────────────────────────────────────────
@dataclass(slots=True)
class _Budget:
    """Remaining allowance for unpacking, subcharts included."""

    left: int = MAX_UNPACKED
    files: int = MAX_FILES

    def take(self, size: int) -> None:
        self.left -= size
        if self.left < 0:
            raise BadArchive(f"unpacks to more than {MAX_UNPACKED:,} bytes")


class _Unpacked(io.RawIOBase):
    """The gunzipped stream, which ends with BadArchive where the budget does."""

    def __init__(self, content: bytes, budget: _Budget) -> None:
        self._rest, self._budget = memoryview(content), budget
        self._zip = zlib.decompressobj(wbits=31)
        self._ready = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        left = size if size >= 0 else MAX_UNPACKED + 1
        out: list[bytes] = []
        while left > 0 and (chunk := self._more()):
            out.append(chunk[:left])
            self._ready = chunk[left:]
            left -= len(out[-1])
        return b"".join(out)

    def _more(self) -> bytes:
        """The next bytes; empty at the end."""
        if self._ready:
            ready, self._ready = self._ready, b""
            return ready
        while not self._zip.eof:
            given = self._zip.unconsumed_tail or bytes(self._rest[:_CHUNK])
            if not self._zip.unconsumed_tail:
                self._rest = self._rest[_CHUNK:]
            chunk = self._zip.decompress(given, _CHUNK)
            self._budget.take(len(chunk))
            if chunk:
                return chunk
            if not given:
                raise BadArchive("ends in the middle")
        return b""


def _read(content: bytes, budget: _Budget, depth: int = 0) -> dict[str, bytes]:
    """Content by path below the one top folder. Raises BadArchive."""
    if not content.startswith(b"\x1f\x8b"):
        raise BadArchive("is not a gzip file")
    files: dict[str, bytes] = {}
    try:
        with tarfile.open(fileobj=_Unpacked(content, budget), mode="r|", bufsize=tarfile.RECORDSIZE) as tar:
            for member in tar:
                path = _path(member, budget)
                if member.isdir():
                    continue
                stream = tar.extractfile(member)
                data = stream.read(MAX_FILE + 1) if stream else b""
                if len(data) != member.size:
                    raise BadArchive("ends in the middle of this file", field=path)
                if path in files:
                    raise BadArchive("is in the archive twice", field=path)
                files[path] = data
    except (zlib.error, tarfile.TarError, EOFError, OSError, ValueError, OverflowError, RecursionError) as error:
        raise BadArchive("is damaged, or is not a tar archive") from error
    return _below(files, budget, depth)


def _path(member: tarfile.TarInfo, budget: _Budget) -> str:
    """Return the member's path. Raises BadArchive for anything that could be more than a file within the archive."""
    shown = "".join(c if c.isprintable() else "?" for c in member.name[:200])
    budget.files -= 1
    if budget.files < 0:
        raise BadArchive(f"has more than {MAX_FILES:,} files")
    if member.issym() or member.islnk():
        raise BadArchive("is a link; a chart holds files only", field=shown)
    if member.type not in (*_FILES, tarfile.DIRTYPE) or member.issparse():
        raise BadArchive("is neither a file nor a folder", field=shown)
    parts = member.name.rstrip("/").split("/")
    if member.name.startswith("/") or re.match(r"[A-Za-z]:", member.name):
        raise BadArchive("is an absolute path", field=shown)
    if ".." in parts or "\\" in member.name or not member.name.isprintable():
        raise BadArchive("leaves its folder, or is no path", field=shown)
    if "." in parts or "" in parts:
        raise BadArchive("is written with `.` or `//`; pack it with `helm package`", field=shown)
    if member.size > MAX_FILE:
        raise BadArchive(f"is {member.size:,} bytes long; at most {MAX_FILE:,} are accepted", field=shown)
    return "/".join(parts)


def _below(files: Mapping[str, bytes], budget: _Budget, depth: int) -> dict[str, bytes]:
    tops = {path.partition("/")[0] for path in files}
    if not files:
        raise BadArchive("is empty")
    if len(tops) > 1 or any("/" not in path for path in files):
        raise BadArchive("holds more than one folder at its top; a chart is one folder")
    chart_files = {path.partition("/")[2]: data for path, data in files.items()}
    for path, data in list(chart_files.items()):
        if _SUBCHART.fullmatch(path):
            if depth >= MAX_NESTED:
                raise BadArchive(f"archives are nested deeper than {MAX_NESTED}", field=path)
            _read(data, budget, depth + 1)  # helm will unpack it too
    return chart_files


# ── What the files say ────────────────────────────────────────────────────────────────────────────────────────────────
def _chart(files: Mapping[str, bytes], sha256: str) -> ChartContent:
    about = _mapping(files, "Chart.yaml", is_required=True)
    name, version = about.get("name"), about.get("version")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise BadArchive("is missing, or is not the name of a chart", field="Chart.yaml: name")
    if not isinstance(version, str) or len(version) > 250 or not _VERSION.fullmatch(version):
        raise BadArchive("is missing, or is not a semantic version", field="Chart.yaml: version")
    if about.get("type") == "library":
        raise BadArchive("is a library for other charts and installs nothing", field="Chart.yaml: type")
    if about.get("apiVersion") not in ("v1", "v2"):
        raise BadArchive("is not v1 or v2, the formats that helm 3 and 4 read", field="Chart.yaml: apiVersion")
    _check_dependencies(files, about)
    return ChartContent(
        name=name,
        version=version,
        app_version=_text(about.get("appVersion"))[:250],
        kubernetes=_text(about.get("kubeVersion"))[:250],
        values=_mapping(files, "values.yaml"),
        schema=_schema(files),
        crds=dict(_crds(files)),
        sha256=sha256,
        values_text=files.get("values.yaml", b"").decode("utf-8", "replace"),
        subcharts=tuple(_dependencies(files, about)),
    )


def _named(files: Mapping[str, bytes], about: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    named = about.get("dependencies")
    if about.get("apiVersion") == "v1":  # they are in a file of their own
        named = _mapping(files, "requirements.yaml").get("dependencies")
    return [each for each in named if isinstance(each, dict)] if isinstance(named, list) else []


def _dependencies(files: Mapping[str, bytes], about: Mapping[str, Any]) -> Iterator[str]:
    for each in _named(files, about):
        if name := _text(each.get("alias") or each.get("name")):
            yield name


def _check_dependencies(files: Mapping[str, bytes], about: Mapping[str, Any]) -> None:
    """Check dependencies as helm does before it renders.

    Each must be in `charts/`, also one that a condition switches off.
    """
    there = {str(_mapping(files, path).get("name")) for path in files if _SUBCHART_FILE.fullmatch(path)}
    for path, data in files.items():
        if _SUBCHART.fullmatch(path):
            inner = _read(data, _Budget(), 1)
            there.add(str(_mapping(inner, "Chart.yaml").get("name")))
    missing = sorted({_text(each.get("name")) for each in _named(files, about)} - there)
    if missing:
        reason = f"{', '.join(missing)[:300]} not in the archive's folder charts/; run `helm dependency build` first"
        raise BadArchive(reason, field="Chart.yaml: dependencies")


def _text(value: object) -> str:
    return "" if value is None or isinstance(value, dict | list) else str(value)


def _mapping(files: Mapping[str, bytes], path: str, *, is_required: bool = False) -> dict[str, Any]:
    if path not in files:
        if is_required:
            raise BadArchive("is missing: this is not a chart", field=path)
        return {}
    try:
        mapping = chart_yaml.load(files[path])
    except chart_yaml.BadChartYaml as error:
        raise BadArchive(str(error), field=path) from error
    if mapping is None and not is_required:
        return {}
    if not isinstance(mapping, dict):
        raise BadArchive("is not a mapping", field=path)
    return mapping


def _schema(files: Mapping[str, bytes]) -> dict[str, Any] | None:
    path = "values.schema.json"
    if path not in files:
        return None
    try:
        schema = json.loads(files[path])
    except (ValueError, RecursionError) as error:
        raise BadArchive("is not JSON", field=path) from error
    if not isinstance(schema, dict):
        raise BadArchive("is not a JSON object", field=path)
    return schema


def _crds(files: Mapping[str, bytes]) -> Iterator[tuple[str, str]]:
    for path in sorted(files):
        if re.fullmatch(r"(?:charts/[^/]+/)*crds/.+\.(?:ya?ml|json)", path):
            yield path, files[path].decode("utf-8", "replace")
