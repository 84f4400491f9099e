"""The agent's identity, from its own token, and the check that it runs in the namespaces of the node's settings."""

from __future__ import annotations

import base64
import binascii
import json
import os
from dataclasses import dataclass

NAMESPACES = ("net", "pid", "ipc")
"""Sysctls of net, of kernel.pid_max (Linux 6.14) and of System V IPC belong to these, not to the machine."""


class NotHere(Exception):
    """The agent cannot do its work in this place. The message says what to change."""


@dataclass(frozen=True, slots=True)
class Identity:
    node: str
    uid: str


def from_token(token: str) -> Identity:
    """Node name and UID from the claims of a token that is bound to a pod. Raises NotHere.

    The signature is the API server's to check: a forged token is refused there, and here it could only mislead us.
    """
    try:
        payload = token.split(".")[1]
        claims = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
        node = claims["kubernetes.io"]["node"]
        name, uid = node["name"], node["uid"]
    except (IndexError, KeyError, TypeError, ValueError, binascii.Error) as error:
        raise NotHere(
            "the token does not name a node: it must be the pod's own bound token, from Kubernetes 1.30 or newer"
        ) from error
    if not (isinstance(name, str) and isinstance(uid, str) and name and uid):
        raise NotHere("the token's node has no name or no UID")
    return Identity(name, uid)


def check_namespaces(proc: str, init_pid: int) -> None:
    """Compare our namespaces with those of the node's first process. Raises NotHere."""
    for name in NAMESPACES:
        ours, theirs = f"{proc}/self/ns/{name}", f"{proc}/{init_pid}/ns/{name}"
        try:
            mine, node = os.readlink(ours), os.readlink(theirs)
        except OSError as error:
            raise NotHere(
                f"cannot read {error.filename}: {error.strerror}. Without it nobody knows whose settings would be "
                "changed; the agent needs hostPID, hostNetwork, hostIPC and a privileged container"
            ) from error
        if mine != node:
            need = {"net": "hostNetwork", "pid": "hostPID", "ipc": "hostIPC"}[name]
            raise NotHere(
                f"in another {name} namespace ({mine}) than process {init_pid} ({node}): settings written here would "
                f"not be the node's. The pod needs {need}: true"
            )
