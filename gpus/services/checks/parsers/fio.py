"""Parser of fio's JSON, `--output-format=json` or `json+`, of fio 3.

{"fio version": "fio-3.36", "jobs": [{"jobname", "error", "read": {"bw_bytes", "iops", "total_ios", "clat_ns":
{"percentile": {"99.000000": ..}}}, "write": {..}}]}. Source: stat.c of github.com/axboe/fio.
"""

from __future__ import annotations

from typing import Any

from gpus.services.checks.verdicts import NotUnderstood, Verdict, json_object, note, number

MOST_JOBS = 64
NANOSECONDS = 1e6
"""In a millisecond."""


def parse(text: str) -> Verdict:
    """Passed: every job ended without an error and did input or output. Raises NotUnderstood."""
    document = json_object(text)
    version, jobs = document.get("fio version"), document.get("jobs")
    if not isinstance(version, str) or not version.startswith("fio-"):
        raise NotUnderstood("The output is not fio's.")
    if not isinstance(jobs, list) or not 1 <= len(jobs) <= MOST_JOBS:
        raise NotUnderstood("The output has no jobs, or more than a check runs.")
    measures: dict[str, float] = {}
    notes, total = [], 0.0
    for job in jobs:
        if not isinstance(job, dict):
            raise NotUnderstood("A job is no object.")
        name = note(job.get("jobname", ""))[:60]
        if "error" not in job:
            raise NotUnderstood(f"{name or 'A job'} does not say whether it failed.")
        if error := number(job["error"], "error"):
            notes.append(f"{name}: error {error:.0f}")
        for way in ("read", "write"):
            total += _add(measures, way, job.get(way))
    measures = {name: value for name, value in measures.items() if value > 0}
    if notes:
        return Verdict(
            False, f"{len(notes)} of {len(jobs)} jobs failed", measures, tuple(notes[:20]), note(version)[:40]
        )
    if not total:
        raise NotUnderstood("No job did any input or output.")
    return Verdict(True, _summary(measures), measures, (), note(version)[:40])


def _add(measures: dict[str, float], way: str, side: Any) -> float:
    """Add one direction of one job: sums of bandwidth and operations, the worst latency. Return its operations."""
    if not isinstance(side, dict):
        raise NotUnderstood(f"A job has no figures of {way}.")
    done = number(side.get("total_ios"), f"total_ios of {way}")
    if not done:
        return 0.0
    for key, name, factor in (("bw_bytes", "bandwidth", 1e9), ("iops", "iops", 1.0)):
        column = f"{way}_{name}"
        measures[column] = measures.get(column, 0.0) + number(side.get(key), f"{key} of {way}") / factor
    latency = side.get("clat_ns")
    percentiles = latency.get("percentile") if isinstance(latency, dict) else None
    if isinstance(percentiles, dict) and "99.000000" in percentiles:
        column = f"{way}_latency_p99"
        milliseconds = number(percentiles["99.000000"], "99.000000") / NANOSECONDS
        measures[column] = max(measures.get(column, 0.0), milliseconds)
    return done


def _summary(measures: dict[str, float]) -> str:
    parts = [
        f"{way} {measures[f'{way}_bandwidth']:.2f} GB/s" for way in ("read", "write") if f"{way}_bandwidth" in measures
    ]
    return ", ".join(parts)
