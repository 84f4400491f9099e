"""Protocols of chart repositories: index.yaml and archive over HTTP; token, manifest and blob of a registry."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode, urljoin, urlsplit

from clusters.kube.http import HttpClient, Response
from common.errors import Refusal
from components.catalog.versions import same_version
from components.charts import archives
from components.values import chart_yaml

MAX_INDEX = 32 * 1024 * 1024
"""Bytes of an index.yaml; prometheus-community's, which keeps every version of 30 charts, is 6 MB."""
MAX_MANIFEST = 1024 * 1024
MAX_TOKEN = 64 * 1024
MAX_REDIRECTS = 5
_MANIFESTS = "application/vnd.oci.image.manifest.v1+json"
_LAYER = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
_DIGEST = re.compile(r"(?:sha256:)?([0-9a-f]{64})")
_CHALLENGE = re.compile(r'([a-z_]+)="([^"]*)"')
_TAG = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,127}")
_REDIRECTS = (301, 302, 303, 307, 308)


class Unfetchable(Refusal):
    """The repository does not give the chart. `is_final`: trying again as it is cannot help."""

    status = 422
    code = "unfetchable"

    def __init__(self, message: str, *, is_final: bool = True) -> None:
        super().__init__(message, fields={"repository": [message]})
        self.is_final = is_final


@dataclass(frozen=True, slots=True)
class ChartSource:
    """Location of a chart, with the settings of the administrator."""

    url: str
    chart: str
    hosts: tuple[str, ...] = ()
    """Others that it may send us to: `host`, or `host:port`."""
    username: str = ""
    password: str = field(default="", repr=False)
    ca: str = field(default="", repr=False)
    name: str = ""
    """Of the administrator's repository; empty: the catalog's own."""
    authors: tuple[int, ...] = ()
    """User ids of all who set that repository up."""

    @property
    def is_oci(self) -> bool:
        return self.url.startswith("oci://")

    @property
    def base(self) -> str:
        return f"https://{self.url.removeprefix('oci://')}" if self.is_oci else self.url

    @property
    def basic(self) -> dict[str, str]:
        if not (self.username or self.password):
            return {}
        pair = base64.b64encode(f"{self.username}:{self.password}".encode()).decode()
        return {"Authorization": f"Basic {pair}"}

    def is_own(self, url: str) -> bool:
        return _place(url) == _place(self.base)

    def is_known(self, url: str) -> bool:
        return self.is_own(url) or _place(url) in {_place(f"https://{host}") for host in self.hosts}

    def __str__(self) -> str:
        return self.name or self.url


@dataclass(frozen=True, slots=True)
class Download:
    content: bytes
    sent_by: str
    """The address that answered in the end, without what may be secret in it."""


def download(door: HttpClient, source: ChartSource, version: str, deadline: float) -> Download:
    """The archive of exactly this version. Raises Unfetchable, FleetError."""
    talk = _Talk(door, source, deadline)
    content = _Registry(talk).chart(version) if source.is_oci else _from_index(talk, source, version)
    at = urlsplit(talk.sent_by[-1])
    return Download(content, f"{at.scheme}://{at.netloc.rpartition('@')[2]}{at.path}"[:600])


def _from_index(talk: _Talk, source: ChartSource, version: str) -> bytes:
    entry = _entry(_entries(talk), source, version)
    urls = entry.get("urls")
    if not isinstance(urls, list) or not urls or not isinstance(urls[0], str):
        raise Unfetchable(f"{source}: its index names no address for {source.chart} {version}")
    content = talk.get(_joined(f"{source.base}/", urls[0], source), archives.MAX_PACKED).body
    digest = str(entry.get("digest") or "")
    if digest:
        _same(content, digest, f"{source}: {source.chart} {version}")
    return content


def offered(door: HttpClient, source: ChartSource, deadline: float) -> Sequence[str]:
    """Versions as the repository lists them. Raises Unfetchable, FleetError."""
    talk = _Talk(door, source, deadline)
    if source.is_oci:
        return _Registry(talk).tags()
    entries = _entries(talk)
    return [entry["version"] for entry in entries if isinstance(entry.get("version"), str)]


def listed(door: HttpClient, source: ChartSource, deadline: float) -> Sequence[str]:
    """Names of the charts that it has, where it tells them; a registry only answers. Raises Unfetchable, FleetError."""
    talk = _Talk(door, source, deadline)
    if source.is_oci:
        _Registry(talk).ping()
        return ()
    return sorted(str(name) for name in _charts(talk))


# ── HTTP ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
def _charts(talk: _Talk) -> Mapping[str, Any]:
    source = talk.source
    body = talk.get(f"{source.base}/index.yaml", MAX_INDEX).body
    try:
        index = json.loads(body) if body.lstrip()[:1] == b"{" else chart_yaml.load(body)
    except (ValueError, RecursionError) as error:
        reason = f": {error}" if isinstance(error, chart_yaml.BadChartYaml) else ""
        raise Unfetchable(f"{source}: index.yaml cannot be read{reason}") from error
    charts = index.get("entries") if isinstance(index, dict) else None
    if not isinstance(charts, dict):
        raise Unfetchable(f"{source}: index.yaml is not the index of a chart repository")
    return charts


def _entries(talk: _Talk) -> list[Mapping[str, Any]]:
    source, charts = talk.source, _charts(talk)
    entries = charts.get(source.chart)
    if not isinstance(entries, list) or not entries:
        raise Unfetchable(f"{source} has no chart {source.chart!r}")
    return [entry for entry in entries if isinstance(entry, dict)]


def _entry(entries: Sequence[Mapping[str, Any]], source: ChartSource, version: str) -> Mapping[str, Any]:
    for entry in entries:
        if same_version(str(entry.get("version")), version):
            return entry
    newest = ", ".join(str(entry.get("version"))[:40] for entry in entries[:3])
    raise Unfetchable(f"{source} has no {source.chart} {version}; its index begins with {newest}")


# ── OCI ───────────────────────────────────────────────────────────────────────────────────────────────────────────────
class _Registry:
    """One chart of one registry; asks for a token when it is told to, once."""

    def __init__(self, talk: _Talk) -> None:
        self.talk, self.source = talk, talk.source
        source = talk.source
        parts = urlsplit(source.base)
        self.root = f"https://{parts.netloc}"
        self.path = f"/v2{parts.path.rstrip('/')}/{quote(source.chart)}"
        self.authorization: dict[str, str] = {}

    def chart(self, version: str) -> bytes:
        manifest = self._json(f"{self.path}/manifests/{self._tag(version)}", {"Accept": _MANIFESTS}, MAX_MANIFEST)
        layers = [layer for layer in manifest.get("layers") or [] if isinstance(layer, dict)]
        layer = next((layer for layer in layers if layer.get("mediaType") == _LAYER), None)
        if layer is None:
            raise Unfetchable(f"{self.source}: {self.source.chart} {version} is no helm chart")
        digest = str(layer.get("digest"))
        if not _DIGEST.fullmatch(digest):
            raise Unfetchable(f"{self.source}: the manifest of {self.source.chart} {version} has no SHA-256 digest")
        content = self._ask(f"{self.path}/blobs/{digest}", {}, archives.MAX_PACKED).body
        _same(content, digest, f"{self.source}: {self.source.chart} {version}")
        return content

    def ping(self) -> None:
        """Check that it is a registry, and that it takes our credentials."""
        self._ask("/v2/", {}, MAX_TOKEN)

    def tags(self) -> list[str]:
        tags = self._json(f"{self.path}/tags/list", {}, MAX_INDEX).get("tags")
        versions = [tag.replace("_", "+") for tag in tags or [] if isinstance(tag, str)]
        if not versions:
            raise Unfetchable(f"{self.source} has no chart {self.source.chart!r}")
        return versions[::-1]

    def _tag(self, version: str) -> str:
        """A tag cannot hold the + of a version's build part; helm writes _ for it."""
        tag = version.replace("+", "_")
        if not _TAG.fullmatch(tag):
            raise Unfetchable(f"{version[:80]!r} is not a version")
        return tag

    def _json(self, path: str, headers: Mapping[str, str], limit: int) -> dict[str, Any]:
        try:
            decoded = json.loads(self._ask(path, headers, limit).body)
        except (ValueError, RecursionError) as error:
            raise Unfetchable(f"{self.source}: the registry's answer is not JSON") from error
        if not isinstance(decoded, dict):
            raise Unfetchable(f"{self.source}: the registry's answer is not a JSON object")
        return decoded

    def _ask(self, path: str, headers: Mapping[str, str], limit: int) -> Response:
        url = f"{self.root}{path}"
        response = self.talk.followed(url, limit, headers=headers, authorization=self.authorization)
        if response.status == 401 and not self.authorization:
            self.authorization = self._token(response.headers.get("www-authenticate", ""))
            response = self.talk.followed(url, limit, headers=headers, authorization=self.authorization)
        return self.talk.good(response, url)

    def _token(self, challenge: str) -> dict[str, str]:
        """The Authorization that this challenge asks for. Raises Unfetchable."""
        scheme, _, rest = challenge.partition(" ")
        if scheme.lower() == "basic" and self.source.basic:
            return self.source.basic
        parameters = dict(_CHALLENGE.findall(rest))
        realm = parameters.get("realm", "")
        if scheme.lower() != "bearer" or not realm:
            raise Unfetchable(f"{self.source} wants a user name and password (401)")
        query = {name: parameters[name] for name in ("service", "scope") if name in parameters}
        url = f"{realm}{'&' if '?' in realm else '?'}{urlencode(query)}"
        # A registry often has its tokens made elsewhere; that host was named, by the catalog or the administrator.
        response = self.talk.followed(url, MAX_TOKEN, authorization=self.source.basic, carries_to_named=True)
        try:
            answer = json.loads(self.talk.good(response, url).body)
            token = answer.get("token") or answer.get("access_token")
        except (ValueError, AttributeError, RecursionError) as error:
            raise Unfetchable(f"{self.source}: the answer to the request for a token is not JSON") from error
        if not isinstance(token, str) or not re.fullmatch(r"[\x21-\x7e]+", token):
            raise Unfetchable(f"{self.source}: the answer to the request for a token holds none")
        return {"Authorization": f"Bearer {token}"}


# ── Both ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
@dataclass(frozen=True, slots=True)
class _Talk:
    """A conversation with one repository, until a deadline."""

    door: HttpClient
    source: ChartSource
    deadline: float
    sent_by: list[str] = field(default_factory=list)
    """The address behind each answer, after redirects."""

    def get(self, url: str, limit: int) -> Response:
        """Raises Unfetchable, FleetError."""
        return self.good(self.followed(url, limit, authorization=self.source.basic), url)

    def followed(
        self,
        url: str,
        limit: int,
        *,
        headers: Mapping[str, str] | None = None,
        authorization: Mapping[str, str],
        carries_to_named: bool = False,
    ) -> Response:
        """The answer behind redirects; `authorization` goes to the repository's own host only, or, where it says so, to
        the named host that is asked first. Raises Unfetchable, FleetError."""
        first = _place(url)
        for _ in range(MAX_REDIRECTS + 1):
            if not self.source.is_known(url):
                raise Unfetchable(f"{self.source} sends us to {_host(url)}, a host that it does not name")
            may_carry = self.source.is_own(url) or (carries_to_named and _place(url) == first)
            sent = {**(headers or {}), **(authorization if may_carry else {})}
            response = self.door.get(url, headers=sent, limit=limit, deadline=self.deadline)
            if response.status not in _REDIRECTS:
                self.sent_by.append(url)
                return response
            url = _joined(url, response.headers.get("location", ""), self.source)
        raise Unfetchable(f"{self.source} redirects without end")

    def good(self, response: Response, url: str) -> Response:
        """The answer, where it is one. Raises Unfetchable."""
        status, path = response.status, _shown(urlsplit(url).path)
        if status == 200:
            return response
        if status in (401, 403):
            whose = "the stored ones are not accepted" if self.source.username else "they may be needed"
            raise Unfetchable(f"{self.source} does not let us read {path} ({status}): user name and password: {whose}")
        if status == 404:
            raise Unfetchable(f"{self.source} has nothing at {path} (404)")
        is_final = 400 <= status < 500 and status not in (408, 429)
        raise Unfetchable(f"{self.source} answered {status} at {path}", is_final=is_final)


def _same(content: bytes, digest: str, what: str) -> None:
    match = _DIGEST.fullmatch(digest)
    if not match:
        raise Unfetchable(f"{what}: the digest that the repository tells is no SHA-256")
    have = hashlib.sha256(content).hexdigest()
    if have != match[1]:
        raise Unfetchable(f"{what}: the archive's SHA-256 is {have}, not {match[1]}, as the repository says itself")


def _joined(base: str, url: str, source: ChartSource) -> str:
    try:
        return urljoin(base, url)
    except ValueError:
        raise Unfetchable(f"{source} sends us to {_shown(url)}, which is no address") from None


def _place(url: str) -> tuple[str, str, int]:
    """Scheme, host and port. An address that cannot be read equals no other."""
    try:
        parts = urlsplit(url)
        return parts.scheme, (parts.hostname or "").lower(), parts.port or 443
    except ValueError:
        return "", url, 0


def _host(url: str) -> str:
    return _shown(urlsplit(url).netloc.rpartition("@")[2] or url)


def _shown(text: str) -> str:
    return "".join(c if c.isprintable() else "?" for c in text[:200])
