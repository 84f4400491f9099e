"""Programs of active checks: what each prints in its own format, the same for the same node but for a little noise.

Their images are `*/checks/dcgm:*`, `*/checks/nccl-tests:*`, `*/checks/fio:*` and `*/checks/python:*`. One node in
eleven has a slow link, on one in thirteen the memory test of a GPU fails, and one in thirteen loses packets.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from typing import Any

from simfleet.controllers.programs import Program

SLOW_LINK, BAD_MEMORY, LOSING = 11, 13, 13


def _seed(pod: Mapping[str, Any], salt: str = "") -> int:
    return zlib.crc32(f"{pod['spec'].get('nodeName')} {salt}".encode())


def _noise(pod: Mapping[str, Any], share: float = 0.01) -> float:
    """A factor near 1 that differs from run to run."""
    return 1 + share * (_seed(pod, pod["metadata"]["name"]) % 2001 / 1000 - 1)


def _gpus(pod: Mapping[str, Any]) -> int:
    limits = pod["spec"]["containers"][0].get("resources", {}).get("limits", {})
    return int(next((count for name, count in limits.items() if name.endswith("/gpu")), "1"))


def diagnostic(pod: Mapping[str, Any]) -> str:
    """Print as dcgmi of DCGM 4 does."""
    command = " ".join(pod["spec"]["containers"][0].get("command") or ())
    level = next((n for n in (1, 2, 3) if f"-r {n}" in command), 1)
    tests = {"Deployment": ["software"]}
    if level > 1:
        tests |= {"Integration": ["pcie"], "Hardware": ["memory"]}
    if level > 2:
        tests["Hardware"] = ["memory", "diagnostic"]
        tests["Stress"] = ["memory_bandwidth", "targeted_stress", "targeted_power"]
    bad = _seed(pod, "memory") % BAD_MEMORY == 0
    categories = [
        {"category": category, "tests": [_test(name, _gpus(pod), is_bad=bad and name == "memory") for name in named]}
        for category, named in tests.items()
    ]
    metadata = {"version": "4.2.3", "Driver Version Detected": "570.124.06"}
    return json.dumps({"DCGM Diagnostic": {"test_categories": categories}, "metadata": metadata}, indent=4)


def _test(name: str, gpus: int, *, is_bad: bool) -> dict[str, Any]:
    results: list[dict[str, Any]] = [
        {"entity_group": "GPU", "entity_group_id": 0, "entity_id": gpu, "status": "Pass"} for gpu in range(gpus)
    ]
    if is_bad:
        text = "GPU 0's memory has uncorrectable errors. Drain the GPU and reset it or reboot the node."
        warning = {"error_category": 7, "error_id": 46, "error_severity": 4, "warning": text}
        results[0] |= {"status": "Fail", "warnings": [warning]}
    return {"name": name, "results": results, "test_summary": {"status": "Fail" if is_bad else "Pass"}}


def all_reduce(pod: Mapping[str, Any]) -> str:
    """Print as all_reduce_perf does."""
    peak = 472.0 * (0.7 if _seed(pod, "link") % SLOW_LINK == 0 else 1.0) * _noise(pod)
    gpus = max(2, _gpus(pod))
    columns = "     time   algbw   busbw #wrong"
    lines = [
        f"# nThread 1 nGpus {gpus} minBytes 8388608 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20",
        "#",
        "# Using devices",
        "#",
        f"#       size         count      type   redop    root{columns}{columns}",
        f"#        (B)    (elements)                          {2 * '     (us)  (GB/s)  (GB/s)       '}",
    ]
    average = []
    for power in range(23, 34):
        size = 2**power
        bus = peak * size / (size + 2**27)
        average.append(bus)
        alg = bus * gpus / (2 * (gpus - 1))
        half = f"{size / alg / 1000:8.1f}{alg:8.2f}{bus:8.2f}{0:7d}"
        lines.append(f"{size:12d}{size // 4:14d}{'float':>10}{'sum':>8}{-1:8d} {half} {half}")
    mean = sum(average) / len(average)
    return "\n".join([*lines, "# Out of bounds values : 0 OK", f"# Avg bus bandwidth    : {mean:.3f} ", "#", ""])


def disk(pod: Mapping[str, Any]) -> str:
    """Print as fio of `--output-format=json+` does."""
    rate = 2.4e9 * (0.5 if _seed(pod, "disk") % SLOW_LINK == 0 else 1.0) * _noise(pod, 0.03)

    def side(share: float, milliseconds: float) -> dict[str, Any]:
        moved = rate * share
        return {
            "io_bytes": int(moved * 60), "bw_bytes": int(moved), "bw": int(moved / 1024), "iops": moved / 131072,
            "runtime": 60000, "total_ios": int(moved * 60 / 131072),
            "clat_ns": {"percentile": {"50.000000": int(milliseconds * 4e5), "99.000000": int(milliseconds * 1e6)}},
        }  # fmt: skip

    job = {
        "jobname": "scratch",
        "error": 0,
        "read": side(0.5, 4.2 * 2.4e9 / rate),
        "write": side(0.5, 5.1 * 2.4e9 / rate),
    }
    return json.dumps({"fio version": "fio-3.36", "timestamp": 0, "jobs": [job]})


def network(pod: Mapping[str, Any]) -> str:
    """Print as the check of the network does, with the targets that it is given."""
    targets = json.loads(pod["spec"]["containers"][0]["command"][-1])["targets"]
    lost = int(_seed(pod, "network") % LOSING == 0)
    names = ["kubernetes.default.svc.cluster.local", *(target for target in targets if ":" not in target)]
    tried: list[tuple[str, str, str]] = [("dns", name, "10.96.0.10") for name in names]
    tried += [("tcp", "10.96.0.1:443", ""), ("https", "10.96.0.1:443", "")]
    tried += [("tcp", target, "") for target in targets if ":" in target]
    usual = {"dns": 0.6, "tcp": 0.3, "https": 4.0}
    probes = [
        {
            "kind": kind,
            "target": target,
            "server": server,
            "answered": (3 if kind == "https" else 10) - (lost if kind == "dns" else 0),
            "failures": {"silent": 1} if lost and kind == "dns" else {},
            "p50_ms": round(usual[kind] * _noise(pod, 0.1), 3),
            "max_ms": round(3 * usual[kind] * _noise(pod, 0.2), 3),
            "received": 3100 if kind == "https" else 0,
        }
        for kind, target, server in tried
    ]
    return json.dumps({"setpoint_network": 1, "python": "3.13.14", "probes": probes, "is_complete": True})


PROGRAMS = (
    Program("*/checks/dcgm:*", run_seconds=20, prints=diagnostic),
    Program("*/checks/nccl-tests:*", run_seconds=15, prints=all_reduce),
    Program("*/checks/fio:*", run_seconds=30, prints=disk),
    Program("*/checks/python:*", run_seconds=3, prints=network),
)
