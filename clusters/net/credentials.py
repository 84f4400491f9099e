"""Credentials given to connect a cluster, validated before anything is stored.

A kubeconfig can name programs to run and files to read; on a server that means running and reading on its workers, so
such fields are refused anywhere in the file, with their line. What remains is plain data: a URL, a CA, and a
token or a client certificate, all inline.

A file with several contexts is refused, naming them, unless one is chosen explicitly: `current-context` is a leftover
of the last user of the file, and connecting production by accident is worse than one more click.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from clusters.net import certificates
from common import yaml
from common.errors import Invalid

MAX_URL = 2048
MAX_TOKEN = 16 * 1024
ONE_CONTEXT = "kubectl config view --minify --flatten --context=NAME"

_REFUSED_IN_USER = {
    "exec": "would run a program on Setpoint's workers; use a service-account token",
    "auth-provider": "would run a credential plugin on Setpoint's workers; use a service-account token",
    "client-certificate": f"is a path to a file; put the certificate inline (`{ONE_CONTEXT}` does)",
    "client-key": f"is a path to a file; put the key inline (`{ONE_CONTEXT}` does)",
    "tokenFile": "is a path to a file; put the token itself under `token`",
    "username": "basic authentication was removed from Kubernetes in 1.19; use a service-account token",
    "password": "basic authentication was removed from Kubernetes in 1.19; use a service-account token",
    "as": "impersonation would make the cluster's audit log name another account; connect as the account itself",
    "as-uid": "impersonation is not supported; connect as the account itself",
    "as-groups": "impersonation is not supported; connect as the account itself",
    "as-user-extra": "impersonation is not supported; connect as the account itself",
}
_REFUSED_IN_CLUSTER = {
    "insecure-skip-tls-verify": "would accept any server as this cluster; give its CA as certificate-authority-data",
    "proxy-url": "would send credentials through another machine; Setpoint connects directly",
    "certificate-authority": f"is a path to a file; put the CA inline (`{ONE_CONTEXT}` does)",
}
_KNOWN_IN_USER = {"token", "client-certificate-data", "client-key-data", "extensions"}
_KNOWN_IN_CLUSTER = {"server", "certificate-authority-data", "tls-server-name", "disable-compression", "extensions"}
_KNOWN = {"apiVersion", "kind", "preferences", "clusters", "users", "contexts", "current-context", "extensions"}


class BadCredentials(Invalid):
    """Refused. The message starts with line and field; `choices` names the contexts when one must be chosen."""

    def __init__(self, reason: str, *, field: str, line: int | None = None, choices: Sequence[str] = ()) -> None:
        message = f"{f'line {line}: ' if line else ''}{field}: {reason}"
        super().__init__(message, fields={field: [message]})
        self.reason = reason
        self.field = field
        self.line = line
        self.choices = tuple(choices)


@dataclass(frozen=True, slots=True)
class Credentials:
    """Address and credentials of one API server. Holds secrets: `repr` shows none, `to_json` all (for encryption)."""

    server: str
    """https URL without query; may have a path, as behind Rancher."""
    ca: str = ""
    """PEM bundle; empty means the machine's trusted roots."""
    token: str = field(default="", repr=False)
    client_certificate: str = ""
    client_key: str = field(default="", repr=False)
    tls_server_name: str = ""
    context: str = ""
    """The kubeconfig context it came from."""

    def to_json(self) -> dict[str, str]:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Credentials:
        """Restore what `to_json` gave; unknown keys of a newer version are left out."""
        return cls(**{name: str(raw[name]) for name in cls.__slots__ if name in raw})

    def expires_at(self) -> datetime | None:
        """Time (UTC) at which the token or the client certificate expires, the first of both; None if neither tells."""
        ends = [at for at in (_token_expiry(self.token), certificates.not_after(self.client_certificate)) if at]
        return min(ends, default=None)


def from_token(*, server: str, ca: str, token: str, now: datetime) -> Credentials:
    """URL, CA as PEM (empty: the machine's trusted roots) and service-account token. Raises BadCredentials."""
    credentials = Credentials(server=server.strip(), ca=ca.strip(), token=token.strip())
    if not credentials.token:
        raise BadCredentials("is required", field="token")
    for name, reason in _objections(credentials, now):
        raise BadCredentials(reason, field=name)
    return credentials


def from_kubeconfig(text: str | bytes, *, now: datetime, context: str | None = None) -> Credentials:
    """Return the credentials of one context. Any bad text raises BadCredentials, with line and field."""
    try:
        document = yaml.load(text)
    except yaml.BadYaml as error:
        raise BadCredentials(error.reason, field=error.field or "kubeconfig", line=error.line) from error
    return _Kubeconfig(document).credentials(context, now)


class _Kubeconfig:
    def __init__(self, document: yaml.YamlDocument) -> None:
        self.document = document
        self.root = self._mapping(document.data)
        if not self.root:
            raise BadCredentials("is empty", field="kubeconfig", line=1)
        if self.root.get("kind") != "Config" or self.root.get("apiVersion") != "v1":
            raise self.refusal("is not a kubeconfig: `apiVersion: v1` and `kind: Config` are expected", "kind")
        self._only_known(_KNOWN)
        self.clusters = self._named("clusters", "cluster")
        self.users = self._named("users", "user")
        self.contexts = self._named("contexts", "context")
        for path in self.users.values():
            self._refuse(_REFUSED_IN_USER, _KNOWN_IN_USER, path)
        for path in self.clusters.values():
            self._refuse(_REFUSED_IN_CLUSTER, _KNOWN_IN_CLUSTER, path)

    def credentials(self, context: str | None, now: datetime) -> Credentials:
        chosen = self._chosen(context)
        path = self.contexts[chosen]
        cluster, user = self._follow(path, "cluster", self.clusters), self._follow(path, "user", self.users)
        sources: dict[str, yaml.Path] = {
            "server": (*cluster, "server"),
            "ca": (*cluster, "certificate-authority-data"),
            "tls_server_name": (*cluster, "tls-server-name"),
            "token": (*user, "token"),
            "client_certificate": (*user, "client-certificate-data"),
            "client_key": (*user, "client-key-data"),
        }
        values = {
            name: self._decoded(at) if str(at[-1]).endswith("-data") else self._text(at) for name, at in sources.items()
        }
        credentials = Credentials(**values, context=chosen)
        if not credentials.token and not credentials.client_certificate:
            raise self.refusal("has neither a token nor a client certificate", *user)
        for name, reason in _objections(credentials, now):
            raise self.refusal(reason, *sources[name])
        return credentials

    def refusal(self, reason: str, *path: str | int, choices: Sequence[str] = ()) -> BadCredentials:
        name = yaml.dotted(path) or "kubeconfig"
        return BadCredentials(reason, field=name, line=self.document.line(*path), choices=choices)

    def _chosen(self, context: str | None) -> str:
        if not self.contexts:
            raise self.refusal("names no context", "contexts")
        if context is None and len(self.contexts) > 1:
            raise self.refusal(
                f"names {len(self.contexts)} contexts ({', '.join(self.contexts)}); choose one",
                "contexts",
                choices=tuple(self.contexts),
            )
        if context is None:
            current = self.root.get("current-context")
            if current and current not in self.contexts:
                raise self.refusal(f"names {current!r}, which the file does not have", "current-context")
            return next(iter(self.contexts))
        if context not in self.contexts:
            known = ", ".join(self.contexts)
            raise self.refusal(f"no context {context!r}; there is {known}", "contexts", choices=tuple(self.contexts))
        return context

    def _follow(self, context: yaml.Path, kind: str, known: Mapping[str, yaml.Path]) -> yaml.Path:
        name = self._text((*context, kind))
        if not name:
            raise self.refusal("is required", *context, kind)
        if name not in known:
            raise self.refusal(f"names {name!r}, which the file does not have", *context, kind)
        return known[name]

    def _named(self, plural: str, singular: str) -> dict[str, yaml.Path]:
        """Path of each entry's body by its name, in the file's order."""
        entries = self.root.get(plural) or []
        if not isinstance(entries, list):
            raise self.refusal("must be a list", plural)
        out: dict[str, yaml.Path] = {}
        for index in range(len(entries)):
            self._only_known({"name", singular}, plural, index)
            name = self._text((plural, index, "name"))
            if not name:
                raise self.refusal("is required", plural, index, "name")
            if name in out:
                raise self.refusal(f"{name!r} is given twice", plural, index, "name")
            out[name] = (plural, index, singular)
        return out

    def _refuse(self, reasons: Mapping[str, str], known: set[str], path: yaml.Path) -> None:
        for key, value in self._mapping(self._at(path), *path).items():
            if key in reasons and value not in (None, "", False, [], {}):
                raise self.refusal(reasons[key], *path, key)
        self._only_known(known | set(reasons), *path)

    def _only_known(self, known: set[str], *path: str | int) -> None:
        for key in self._mapping(self._at(path), *path):
            if key not in known:
                raise self.refusal("is not a field that Setpoint knows here", *path, key)

    def _at(self, path: yaml.Path) -> Any:
        value = self.document.data
        for part in path:
            value = value[part] if isinstance(part, int) else (value or {}).get(part)
        return value

    def _mapping(self, value: Any, *path: str | int) -> dict[str, Any]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.refusal("must be a mapping", *path)
        return value

    def _text(self, path: yaml.Path) -> str:
        value = self._at(path)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise self.refusal("must be text; quotes make it so", *path)
        return value.strip()

    def _decoded(self, path: yaml.Path) -> str:
        try:
            return base64.b64decode("".join(self._text(path).split()), validate=True).decode("ascii")
        except (binascii.Error, ValueError) as error:
            raise self.refusal("is not base64 of a PEM text", *path) from error


def _objections(credentials: Credentials, now: datetime) -> list[tuple[str, str]]:
    """Attribute of Credentials and what is wrong with it, in the order a person would mend them."""
    client = certificates.objections_to_client(credentials.client_certificate, credentials.client_key, now)
    judged = [
        ("server", _bad_server(credentials.server)),
        ("ca", certificates.objection_to_ca(credentials.ca, now)),
        ("tls_server_name", _bad_name(credentials.tls_server_name)),
        ("token", _bad_token(credentials.token, now)),
        *client,
    ]
    return [(name, reason) for name, reason in judged if reason]


def _bad_server(url: str) -> str:
    if not url:
        return "is required"
    if len(url) > MAX_URL or not url.isprintable() or " " in url or not url.isascii():
        return "is not a URL"
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return "is not a URL"
    if parts.scheme != "https":
        return "must start with https://: over anything else the credentials could be read on the way"
    if parts.username is not None or parts.password is not None:
        return "must not carry a user name or password"
    if parts.query or parts.fragment or "?" in url or "#" in url:
        return "must not have a query or fragment"
    if not parts.hostname or port == 0 or ".." in parts.path or "\\" in url or "%" in url:
        return "is not the URL of a server"
    return _bad_name(parts.hostname) if ":" not in parts.hostname else ""


def _bad_name(name: str) -> str:
    if name and not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?", name):
        return f"{name[:80]!r} is not a host name"
    return ""


def _bad_token(token: str, now: datetime) -> str:
    if len(token) > MAX_TOKEN:
        return f"is longer than {MAX_TOKEN:,} characters"
    if not re.fullmatch(r"[\x21-\x7e]*", token):
        return "has white space or characters outside ASCII; it would not survive as an HTTP header"
    ends = _token_expiry(token)
    if ends and ends <= now:
        return f"expired at {ends:%Y-%m-%d %H:%M} UTC; make a new one"
    return ""


def _token_expiry(token: str) -> datetime | None:
    """The `exp` of a JWT, unverified; None for other tokens."""
    parts = token.split(".")
    if len(parts) != 3:
        return None
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
        return certificates.utc(float(claims["exp"]))
    except (ValueError, KeyError, TypeError, OverflowError, OSError, RecursionError):
        return None
