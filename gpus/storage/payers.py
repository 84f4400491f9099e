"""Keys of those who hold GPUs: a namespace, with the workload in it where the API server names the pod's controller.

A Kubernetes name has no slash, so the parts of a key are unambiguous.
"""

from __future__ import annotations


def key(namespace: str, kind: str = "", name: str = "") -> str:
    space = namespace.partition("/")[0]  # a label of telemetry may be any text
    return f"{space}/{kind}/{name}" if kind and name else space


def namespace(payer: str) -> str:
    return payer.partition("/")[0]


def owner(payer: str) -> str:
    """Return `Kind/name` of the workload; empty where it is not known."""
    return payer.partition("/")[2]
