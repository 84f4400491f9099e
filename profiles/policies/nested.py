"""Checks of what may lie anywhere within an object: plain secrets, the node's own parts, reserved namespaces."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from common import yaml
from common.secret_names import looks_secret
from contract import names
from profiles.policies.kubernetes import Judge

_MORE_SECRETS = re.compile(r"(secret|access_?key_?id)$", re.IGNORECASE)
_IN_ADDRESS = re.compile(r"://[^/\s@]*:[^/\s@]+@")
_SEPARATORS = str.maketrans(".-", "__")
_PLAIN = "looks like a secret in plain text: name a Secret of the cluster instead"
_OF_THE_NODE = ("hostPID", "hostIPC", "privileged")
_ACCOUNTS = ("serviceAccountName", "serviceAccount")
CAPABILITIES = frozenset((
    "CHOWN", "DAC_OVERRIDE", "FOWNER", "IPC_LOCK", "KILL", "NET_BIND_SERVICE", "NET_RAW", "SETGID", "SETUID",
    "SYS_CHROOT", "SYS_NICE", "SYS_RESOURCE",
))  # fmt: skip
"""That a container of a profile may add: none of them leads out of it."""


def entries(raw: Any, path: yaml.Path = ()) -> Iterator[tuple[yaml.Path, Any]]:
    """Yield the path and value of every entry of a mapping and item of a list, at any depth."""
    pairs = raw.items() if isinstance(raw, Mapping) else enumerate(raw) if isinstance(raw, list) else ()
    for key, value in pairs:
        yield (*path, key), value
        yield from entries(value, (*path, key))


def is_reserved(namespace: Any) -> bool:
    """Return whether it is a namespace of Kubernetes or of Setpoint."""
    return isinstance(namespace, str) and (namespace.startswith("kube-") or namespace == names.NAMESPACE)


def is_secret(name: Any, value: Any) -> bool:
    """Return whether a plain text is kept under a name such as `fs.s3a.secret.key` or `access-key`."""
    plain = str(name).translate(_SEPARATORS)
    return looks_secret(plain, value) or (isinstance(value, str) and bool(value and _MORE_SECRETS.search(plain)))


def has_password(text: Any) -> bool:
    """Return whether an address is written with a password: `https://user:word@host`."""
    return isinstance(text, str) and bool(_IN_ADDRESS.search(text))


def refuse_secrets(judge: Judge, path: yaml.Path, raw: Any) -> None:
    """Refuse texts under telling names, also of variables with `name` and `value`, and passwords in addresses."""
    for at, value in entries(raw, path):
        if isinstance(value, Mapping) and "value" in value and is_secret(value.get("name"), value["value"]):
            judge.refuse((*at, "value"), _PLAIN, code="plain-secret")
        elif is_secret(at[-1], value):
            judge.refuse(at, _PLAIN, code="plain-secret")
        elif has_password(value):
            judge.refuse(at, "has a password in an address: name a Secret of the cluster instead", code="plain-secret")


def refuse_node_access(judge: Judge, path: yaml.Path, raw: Any) -> None:
    """Refuse what gives a pod the node's own files or processes, or the rights of an account."""
    for at, value in entries(raw, path):
        name = at[-1]
        if name == "hostPath" and value is not None:
            judge.refuse(at, "gives pods the node's own files; want a claim", code="host-path")
        elif name in _OF_THE_NODE and value not in (None, False):
            judge.refuse(at, "gives pods the node itself", code="escalation")
        elif name in _ACCOUNTS and value not in (None, "", "default"):
            judge.refuse(at, "gives pods the rights of an account", code="escalation")
        elif name == "add" and at[-2:-1] == ("capabilities",):
            added = value if isinstance(value, list) else [value]
            for capability in added:
                if str(capability).removeprefix("CAP_") not in CAPABILITIES:
                    judge.refuse(at, f"{str(capability)[:40]} leads out of the container", code="escalation")


def refuse_reserved(judge: Judge, path: yaml.Path, raw: Any) -> None:
    """Refuse references into the namespaces of Kubernetes and of Setpoint."""
    for at, value in entries(raw, path):
        if str(at[-1]).lower().endswith("namespace") and is_reserved(value):
            judge.refuse(at, f"{value} belongs to Kubernetes or to Setpoint", code="reserved")
