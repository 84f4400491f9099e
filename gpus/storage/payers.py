"""Keys of those who hold GPUs: a namespace, with the workload in it and its job where the API server names the pod's.

A key is `namespace/Kind/name/job`: the workload is the pod's controller, the job a `GpuJob.key`. Where neither is
known, it is the namespace alone. A Kubernetes name has no slash, so the parts of a key are unambiguous.
"""

from __future__ import annotations

_PARTS = 4


def key(namespace: str, kind: str = "", name: str = "", job: str = "") -> str:
    space = namespace.partition("/")[0]  # a label of telemetry may be any text
    workload = f"{kind}/{name}" if kind and name else "/"
    if not job:
        return space if workload == "/" else f"{space}/{workload}"
    return f"{space}/{workload}/{job.replace('/', '-')}"


def namespace(payer: str) -> str:
    return payer.partition("/")[0]


def owner(payer: str) -> str:
    """Return `Kind/name` of the workload; empty where it is not known."""
    workload = payer.partition("/")[2]
    if payer.count("/") >= _PARTS - 1:
        workload = workload.rpartition("/")[0]
    return "" if workload == "/" else workload


def job(payer: str) -> str:
    """Return the job's key; empty where it is not known."""
    return payer.rpartition("/")[2] if payer.count("/") >= _PARTS - 1 else ""
