"""Checks of a ConfigMap: readable by all who may read the namespace, so no secret is written into it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from common.secret_names import looks_secret
from profiles.policies.kubernetes import Judge

RESERVED = frozenset({
    "kube-root-ca.crt", "openshift-service-ca.crt", "istio-ca-root-cert", "extension-apiserver-authentication",
    "kubeadm-config", "kubelet-config", "kube-proxy", "coredns", "cluster-info", "aws-auth",
})  # fmt: skip
"""By which pods trust the API server, or nodes and people join the cluster: of no namespace may a profile write one."""
MAX_ENTRIES = 64
_KEY = re.compile(r"[-._a-zA-Z0-9]{1,253}")
_CREDENTIALS = {
    "a private key": re.compile(r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"),
    "an AWS access key": re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    "a JSON Web Token": re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}"),
    "a GitHub token": re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,})"),
    "a URL with a password": re.compile(r"\b[a-z][a-z0-9+.-]*://[^\s/:@]+:[^\s/@]+@", re.IGNORECASE),
    "the token of a kubeconfig": re.compile(r"\bclient-key-data\s*:|\bBearer\s+[A-Za-z0-9._-]{20,}"),
}
"""By forms that are fixed: PEM (RFC 7468), AWS' and GitHub's prefixes, RFC 7519, RFC 3986, kubectl's configuration."""
_SETTING = re.compile(r"""[\s{,\[-]*["']?([A-Za-z0-9_.-]{1,80})["']?\s*[:=]\s*["']?([^\s"',}]*)""")
_NO_VALUE = re.compile(r"(?:|null|none|true|false|~|\|-?|>-?|&\S*|\$\{?\S*|\{\{.*|<\S*)", re.IGNORECASE)
"""Values that are no secret: none, a switch, a reference to the environment or to a template."""


def config_map(judge: Judge, raw: Mapping[str, Any]) -> None:
    name = raw["metadata"].get("name")
    if name in RESERVED:
        judge.refuse(("metadata", "name"), f"{name} is the cluster's own", code="reserved")
    if raw.get("binaryData") is not None:
        judge.refuse(("binaryData",), "cannot be read by those who approve it: write text under data")
    judge.boolean(("immutable",), raw.get("immutable"))
    data = judge.mapping(("data",), raw.get("data"), required=raw.get("binaryData") is None)
    if len(data) > MAX_ENTRIES:
        judge.refuse(("data",), f"holds {len(data)} entries; at most {MAX_ENTRIES} are accepted")
    for key, value in data.items():
        if not _KEY.fullmatch(key) or key in (".", ".."):
            judge.refuse(("data", key), "must be a file's name: letters, digits, '-', '_' and '.'")
        if not isinstance(value, str):
            judge.refuse(("data", key), "must be text; put it in quotes")
        elif what := next(credentials(key, value), ""):
            message = f"looks like {what}: put it into a Secret, which a profile never holds"
            judge.refuse(("data", key), message, code="plain-secret")


def credentials(key: str, text: str) -> Iterator[str]:
    """Name what in an entry looks like a secret in plain text."""
    for what, pattern in _CREDENTIALS.items():
        if pattern.search(text):
            yield what
    if looks_secret(key, text) and not _NO_VALUE.fullmatch(text.strip()):
        yield "a secret, by its name"
    for number, line in enumerate(text.splitlines(), 1):
        for setting in _SETTING.finditer(line):
            if looks_secret(setting[1], setting[2]) and not _NO_VALUE.fullmatch(setting[2]):
                yield f"a secret, in line {number} after {setting[1]}"
