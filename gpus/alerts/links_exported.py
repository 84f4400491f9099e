"""The rule over NVLink's traffic in PromQL: its recording rules and its expression, the same as `gpus.alerts.links`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gpus.alerts import links
from gpus.metrics.states import IDLE_BELOW

TRAFFIC = "setpoint:gpu_nvlink_traffic:bytes_per_second"
"""Both directions: what profiling counts, else the driver's sum."""
ALONE = "setpoint:gpu_held_alone:bool"
GPUS = "setpoint:gpu_held_alone:count"
AT_WORK = "setpoint:gpu_at_work:ratio"
POD = "node, workload_namespace, workload_pod"
GPU_OF_POD = "UUID, workload_namespace, workload_pod"
BEFORE = "1h"
"""How long a pod that reports fewer GPUs than before is not judged."""


def recordings(temperature: str, works: Sequence[str], held: str, board: str) -> Iterator[dict[str, str]]:
    """`works`: series of the activity, the best one first; `held`: matchers of devices that pods hold."""
    whole = f'{temperature}{{GPU_I_ID="",{held}}}'
    every = f"group by ({board}, workload_namespace, workload_pod) ({whole})"
    yield {"record": ALONE, "expr": f"{every} and on (UUID) count by (UUID) ({whole}) == 1"}
    yield {"record": GPUS, "expr": f"count by ({POD}) ({ALONE})"}
    parts, better = [], ""
    for work in works:
        own = _alone(work, held)
        judged = f"(quantile by ({POD}) (0.5, {own}) >= {IDLE_BELOW:g} and count by ({POD}) ({own}) == {GPUS})"
        parts.append(f"({own} >= on ({POD}) group_left () ({links.AT_WORK:g} * {judged}){better})")
        better += f" unless on ({POD}) {judged}"
    yield {"record": AT_WORK, "expr": " or ".join(parts)}


def lagging(share: float, held: str, board: str) -> str:
    """Return GPUs at work that move less than this share of their pod's median, where less than a quarter do."""
    own = _alone(TRAFFIC, held)
    middle, gpus = f"quantile by ({POD}) (0.5, {own})", f"count by ({POD}) ({own})"
    is_whole = f"{gpus} == {GPUS} == max_over_time({GPUS}[{BEFORE}])"
    judged = f"({middle} >= {links.FLOOR:g} and {gpus} >= {links.FEWEST} and {is_whole})"
    low = f"({own} < on ({POD}) group_left () ({share:g} * {judged}))"
    few = f"(count by ({POD}) {low} < {links.MOST_LOW:g} * {gpus})"
    return f"max by ({board}) ({low} and on ({POD}) {few} and on ({GPU_OF_POD}) {AT_WORK})"


def _alone(record: str, held: str) -> str:
    return f'({record}{{GPU_I_ID="",{held}}} and on ({GPU_OF_POD}) {ALONE})'
