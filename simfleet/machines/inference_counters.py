"""Metrics of a simulated vLLM server at any time, in the names, labels and buckets of vllm/v1/metrics/loggers.py.

A counter's value follows from the time since the server's start alone, so every rate can be computed by hand.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from simfleet.machines.host_counters import Sample

PERIOD = 7200.0
SWING = 0.4
TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
        160.0, 640.0, 2560.0)  # fmt: skip
TPOT = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
QUEUE = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0,
         1920.0, 7680.0)  # fmt: skip


@dataclass(frozen=True, slots=True)
class ServingLoad:
    """Means of one server."""

    model: str = "meta-llama/Llama-3.3-70B-Instruct"
    requests: float = 1.8
    """That end in a second."""
    tokens_in: float = 900.0
    """Of a request."""
    tokens_out: float = 260.0
    running: float = 38.0
    waiting: float = 0.0
    kv: float = 0.55
    preemptions: float = 0.0
    """In a second."""
    ttft: float = 0.35
    """Seconds, the median; a tenth of the requests takes ten times as long."""
    tpot: float = 0.03
    queue: float = 0.02


FULL = ServingLoad(running=96.0, waiting=14.0, kv=0.96, preemptions=0.02, ttft=2.1, tpot=0.062, queue=1.7)
"""More requests than the KV cache has room for."""
HIGHEST = 0.985
"""Share of the KV cache: the scheduler keeps some blocks free."""


def samples(at: float, start: float, load: ServingLoad) -> Iterator[Sample]:
    """Yield what the server prints at this time; nothing before its start."""
    if at < start:
        return
    labels = {"model_name": load.model, "engine": "0"}
    passed = _integral(at) - _integral(start)
    high = 1 + SWING * math.sin(math.tau * at / PERIOD)
    yield "vllm:num_requests_running", labels, round(load.running * high)
    yield "vllm:num_requests_waiting", labels, round(load.waiting * high)
    kv = min(HIGHEST, load.kv * high)
    yield "vllm:kv_cache_usage_perc", labels, kv
    yield "vllm:gpu_cache_usage_perc", labels, kv
    requests = load.requests * passed
    yield "vllm:prompt_tokens_total", labels, requests * load.tokens_in
    yield "vllm:generation_tokens_total", labels, requests * load.tokens_out
    yield "vllm:num_preemptions_total", labels, load.preemptions * passed
    for reason, share in (("stop", 0.9), ("length", 0.1), ("abort", 0.0)):
        yield "vllm:request_success_total", {**labels, "finished_reason": reason}, requests * share
    yield from _histogram("vllm:time_to_first_token_seconds", labels, TTFT, requests, load.ttft)
    each = requests * load.tokens_out
    yield from _histogram("vllm:inter_token_latency_seconds", labels, TPOT, each, load.tpot)
    yield from _histogram("vllm:time_per_output_token_seconds", labels, TPOT, each, load.tpot)
    yield from _histogram("vllm:request_queue_time_seconds", labels, QUEUE, requests, load.queue)


def _histogram(
    name: str, labels: dict[str, str], boundaries: tuple[float, ...], count: float, middle: float
) -> Iterator[Sample]:
    """Nine tenths lie around the middle, evenly from half to half as much again; the rest at ten times of it."""
    for boundary in boundaries:
        below = min(1.0, max(0.0, (boundary - middle / 2) / middle))
        slow = 1.0 if boundary >= 10 * middle else 0.0
        yield f"{name}_bucket", {**labels, "le": repr(boundary)}, count * (0.9 * below + 0.1 * slow)
    yield f"{name}_bucket", {**labels, "le": "+Inf"}, count
    yield f"{name}_count", labels, count
    yield f"{name}_sum", labels, count * (0.9 * middle + 0.1 * 10 * middle)


def _integral(at: float) -> float:
    """Return the time so far, each second as long as the load is high in it."""
    return at - SWING * PERIOD / math.tau * math.cos(math.tau * at / PERIOD)
