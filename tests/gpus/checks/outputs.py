"""Outputs of checks' programs, in their exact formats."""

from __future__ import annotations

import json
from typing import Any

DCGM_3 = """{
\t"DCGM GPU Diagnostic" :\x20
\t{
\t\t"Driver Version Detected" : "535.129.03",
\t\t"GPU Device IDs" : [ "2330", "2330" ],
\t\t"GPU Device Serials" : { "0" : "1650123000001", "1" : "1650123000002" },
\t\t"test_categories" :\x20
\t\t[
\t\t\t{ "category" : "Deployment", "tests" :\x20
\t\t\t\t[ { "name" : "Denylist", "results" : [ { "gpu_id" : "0,1", "status" : "PASS" } ] } ] },
\t\t\t{ "category" : "Integration", "tests" :\x20
\t\t\t\t[ { "name" : "PCIe", "results" : [ { "gpu_id" : "0", "info" : "Bandwidth: 25.4", "status" : "PASS" },
\t\t\t\t\t{ "gpu_id" : "1", "status" : "PASS" } ] } ] },
\t\t\t{ "category" : "Hardware", "tests" :\x20
\t\t\t\t[ { "name" : "GPU Memory", "results" : [ { "gpu_id" : "0", "status" : "PASS" },
					{ "gpu_id" : "1", "status" : "STATUS",
\t\t\t\t\t"warnings" : "A DBE was found on GPU 1." } ] } ] }
\t\t],
\t\t"version" : "3.3.5"
\t}
}
"""


def dcgm_4(*tests: tuple[str, str, str], gpus: int = 2) -> str:
    """Each test is its category, name and the status on the last GPU."""
    categories: list[dict[str, Any]] = []
    for category, name, status in tests:
        results: list[dict[str, Any]] = [
            {"entity_group": "GPU", "entity_group_id": 0, "entity_id": gpu, "status": "Pass"} for gpu in range(gpus - 1)
        ]
        last: dict[str, Any] = {"entity_group": "GPU", "entity_group_id": 0, "entity_id": gpus - 1, "status": status}
        if status == "Fail":
            text = "Detected 3 volatile double-bit ECC errors on GPU 1."
            last["warnings"] = [{"error_category": 4, "error_id": 5, "error_severity": 4, "warning": text}]
        if status == "Skip":
            results = [dict(r, status="Skip") for r in results]
        results.append(last)
        test = {"name": name, "results": results, "test_summary": {"status": status}}
        categories.append({"category": category, "tests": [test]})
    metadata = {"Driver Version Detected": "570.124.06", "version": "4.2.3"}
    return json.dumps({"DCGM Diagnostic": {"test_categories": categories}, "metadata": metadata}, indent=1)


NCCL = """# nThread 1 nGpus 8 minBytes 4294967296 maxBytes 8589934592 step: 2(factor)
#
# Using devices
#  Rank  0 Group  0 Pid    855 on n1 device  0 [0x1b] NVIDIA H100 80GB HBM3
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
  4294967296    1073741824     float     sum      -1  16195.4  265.20  464.10      0  16190.9  265.27  464.23      0
  8589934592    2147483648     float     sum      -1    31843  269.76  472.08      0    31881  269.44  471.51      0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 467.980
#
# Collective test concluded: all_reduce_perf
"""


def fio(error: int = 0, **read: Any) -> str:
    side = {"io_bytes": 72000000000, "bw_bytes": 1200000000, "bw": 1171875, "iops": 9155.27, "runtime": 60000,
            "total_ios": 549316, "clat_ns": {"percentile": {"50.000000": 1500000, "99.000000": 4200000}}}  # fmt: skip
    job = {"jobname": "scratch", "error": error, "read": side | read, "write": side, "trim": {"total_ios": 0}}
    return "fio: note about the file\n" + json.dumps({"fio version": "fio-3.36", "jobs": [job]}, indent=2)


def probe(kind: str, target: str, server: str = "", /, **changed: Any) -> dict[str, Any]:
    times = {"p50_ms": 0.4, "max_ms": 2.5, "received": 3100 if kind == "https" else 0}
    return {
        "kind": kind, "target": target, "server": server, "answered": 3 if kind == "https" else 10, "failures": {},
    } | times | changed  # fmt: skip


OWN_NAME, API = "kubernetes.default.svc.cluster.local", "10.96.0.1:443"


def network(*more: dict[str, Any], dns: dict[str, Any] | None = None, **root: Any) -> str:
    """`dns` changes the probe of the cluster's own name, `root` the document, `more` are probes besides."""
    probes = [probe("dns", OWN_NAME, "10.96.0.10", **(dns or {})), probe("tcp", API), probe("https", API), *more]
    return json.dumps({"setpoint_network": 1, "python": "3.13.14", "probes": probes, "is_complete": True} | root)
