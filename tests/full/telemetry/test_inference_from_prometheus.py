"""A real Prometheus with the texts of four inference servers: figures are what its raw samples say, by hand."""

from __future__ import annotations

import math
import random
from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

from clusters.models import GpuJob, JobPod
from common.clock import now
from gpus.models import TelemetrySource
from gpus.reports import ranges
from gpus.reports.inference import deployments
from gpus.reports.inference.deployments import Deployment, Serving
from tests.clusters.factories import ClusterFactory
from tests.full.harness.client import eventually
from tests.full.harness.prometheus import Job, Prometheus
from tests.gpus.inference.printed import parsed, target, text

pytestmark = [pytest.mark.full, pytest.mark.django_db]

EVERY, HOUR = 30, 3600
PODS = {
    "chat-0": "vllm",
    "chat-1": "vllm",
    "old-0": "vllm_v0",
    "code-0": "sglang",
    "trt-0": "triton",
    "gate-0": "dynamo",
}
RESTARTED = "chat-0"


class History:
    """Raw samples of each pod over 70 minutes. Counters rise by chance; one pod starts again in the middle."""

    def __init__(self, end: float) -> None:
        self.chance = random.Random(17)
        self.times = [end - 70 * 60 + EVERY * number for number in range(141)]
        self.series: dict[tuple[str, str, tuple[tuple[str, str], ...]], list[float]] = {}
        for pod, name in PODS.items():
            self._write(pod, name)

    def _write(self, pod: str, name: str) -> None:
        again = 80 if pod == RESTARTED else 0
        flows: dict[object, list[float]] = {}
        before: dict[object, float] = {}
        for kind, metric, labels, value in parsed(text(name)):
            key = (pod, metric, tuple(sorted(labels.items())))
            if kind not in ("counter", "histogram"):
                self.series[key] = [value * self.chance.uniform(0.6, 1.0) for _ in self.times]
                continue
            # Buckets of one histogram share a flow, or their sums would not be cumulative.
            family = (
                metric.rpartition("_")[0] if kind == "histogram" else metric,
                *sorted(labels.items() - _le(labels)),
            )
            flow = flows.setdefault(family, [self.chance.uniform(0.5, 1.5) for _ in self.times])
            before[family] = value
            total, values = 0.0, []
            for place, share in enumerate(flow):
                total = 0.0 if again and place == again else total + value * share * EVERY / HOUR
                values.append(total)
            self.series[key] = values

    def text(self) -> str:
        lines = []
        for (pod, metric, labels), values in self.series.items():
            # One pod is scraped by a second job, too.
            for job in ("podmonitor/team", "kubernetes-pods") if pod == "chat-1" else ("podmonitor/team",):
                shown = ",".join(f'{key}="{word}"' for key, word in {**dict(labels), **_target(pod, job)}.items())
                lines += [
                    f"{metric}{{{shown}}} {value!r} {at:.3f}" for at, value in zip(self.times, values, strict=True)
                ]
        for pod in PODS:
            for job in ("podmonitor/team", "kubernetes-pods"):
                shown = ",".join(f'{key}="{word}"' for key, word in _target(pod, job).items())
                lines += [f"up{{{shown}}} 1 {at:.3f}" for at in self.times]
        return "\n".join([*lines, "# EOF", ""])

    def each(
        self, pods: list[str], metric: str, **wanted: str
    ) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
        start = self.times[-1] - HOUR
        return [
            (dict(labels), [(at, value) for at, value in zip(self.times, values, strict=True) if at >= start])
            for (pod, name, labels), values in self.series.items()
            if pod in pods and name == metric and wanted.items() <= dict(labels).items()
        ]

    def risen(self, pods: list[str], metric: str, **wanted: str) -> float:
        """Return the rise in the hour: from sample to sample, and from zero where it fell."""
        return sum(
            sum(later if later < earlier else later - earlier for (_, earlier), (_, later) in pairwise(points))
            for _, points in self.each(pods, metric, **wanted)
        )

    def mean(self, pods: list[str], metric: str, **wanted: str) -> float:
        """Return the sum over series of their means."""
        return sum(sum(value for _, value in points) / len(points) for _, points in self.each(pods, metric, **wanted))

    def quantile(self, share: float, pods: list[str], metric: str) -> float:
        counts: dict[float, float] = {}
        for labels, _ in self.each(pods, f"{metric}_bucket"):
            boundary = labels["le"]
            counts[float(boundary)] = self.risen(pods, f"{metric}_bucket", le=boundary)
        rank, low, below = share * counts[math.inf], 0.0, 0.0
        for boundary, count in sorted(counts.items()):
            if count >= rank:
                return low + (boundary - low) * (rank - below) / (count - below)
            low, below = boundary, count
        raise AssertionError


def _le(labels: dict[str, str]) -> set[tuple[str, str]]:
    return {("le", labels["le"])} if "le" in labels else set()


def _target(pod: str, job: str) -> dict[str, str]:
    return target("team", pod, job=job)


@pytest.fixture
def source(settings):
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    return TelemetrySource.objects.create(cluster=ClusterFactory(), kind=TelemetrySource.Kind.PROMETHEUS)


def make_job(source: TelemetrySource, namespace: str, name: str, replicas: int, start: float) -> GpuJob:
    pods = [JobPod(f"{name}-{n}", f"{name}-{n}", "n1", 1, int(start), int(start), None, "", 0) for n in range(replicas)]
    at = datetime.fromtimestamp(start, UTC)
    return GpuJob.objects.create(
        cluster=source.cluster, key=f"{namespace}-{name}", namespace=namespace, kind="StatefulSet", name=name,
        queued_at=at, started_at=at, pods=GpuJob.stored(pods),
    )  # fmt: skip


def means_by_hand(history: History) -> dict[str, dict[str, float]]:
    chat = ["chat-0", "chat-1"]
    return {
        "chat": {
            "running": history.mean(chat, "vllm:num_requests_running"),
            "waiting": history.mean(chat, "vllm:num_requests_waiting"),
            "kv_cache": history.mean(chat, "vllm:kv_cache_usage_perc") / 4,
            "tokens": history.risen(chat, "vllm:generation_tokens_total"),
            "tokens_in": history.risen(chat, "vllm:prompt_tokens_total") / HOUR,
            "requests": history.risen(chat, "vllm:request_success_total") / HOUR,
            "preemptions": history.risen(chat, "vllm:num_preemptions_total"),
            "queue_wait": history.risen(chat, "vllm:request_queue_time_seconds_sum")
            / history.risen(chat, "vllm:request_queue_time_seconds_count"),
            "tokens_per_gpu": history.risen(chat, "vllm:generation_tokens_total") / HOUR / 2,
        },
        "old": {
            "kv_cache": history.mean(["old-0"], "vllm:gpu_cache_usage_perc"),
            "tokens": history.risen(["old-0"], "vllm:generation_tokens_total"),
        },
        "code": {
            "waiting": history.mean(["code-0"], "sglang:num_queue_reqs", pp_rank="0", tp_rank="0"),
            "tokens": history.risen(["code-0"], "sglang:generation_tokens_total"),
            "requests": history.risen(["code-0"], "sglang:num_requests_total") / HOUR,
        },
        "trt": {
            "running": history.mean(["trt-0"], "nv_trt_llm_request_metrics", request_type="scheduled"),
            "kv_cache": history.mean(["trt-0"], "nv_trt_llm_kv_cache_block_metrics", kv_cache_block_type="used")
            / history.mean(["trt-0"], "nv_trt_llm_kv_cache_block_metrics", kv_cache_block_type="max"),
            "tokens": history.risen(["trt-0"], "nv_llm_output_token_len_sum"),
            "queue_wait": history.risen(["trt-0"], "nv_inference_queue_duration_us", model="tensorrt_llm")
            / 1e6
            / max(
                history.risen(["trt-0"], "nv_inference_request_success", model=model)
                for model in ("ensemble", "preprocessing", "tensorrt_llm", "postprocessing")
            ),
        },
    }


def compare_quantiles(history: History, rows: dict[str, Deployment]) -> None:
    for name, figure, metric, scale in (
        ("chat", "ttft", "vllm:time_to_first_token_seconds", 1.0),
        ("chat", "tpot", "vllm:inter_token_latency_seconds", 1.0),
        ("old", "tpot", "vllm:time_per_output_token_seconds", 1.0),
        ("code", "ttft", "sglang:time_to_first_token_seconds", 1.0),
        ("trt", "ttft", "nv_inference_first_response_histogram_ms", 1000.0),
    ):
        pods = [pod for pod in PODS if pod.startswith(f"{name}-")]
        for share in (0.5, 0.95):
            shown = getattr(rows[name].figures, figure)[share]
            assert shown.value * scale == pytest.approx(history.quantile(share, pods, metric), rel=0.03), (name, figure)


def last_hour(source: TelemetrySource) -> Serving:
    """Read up to now. A range that is made once ends within five minutes, perhaps before the next scrape."""
    return deployments.of_cluster(source.cluster, ranges.INFERENCE.preset("1h"))


def with_live_pod(source: TelemetrySource) -> Serving | None:
    serving = last_hour(source)
    return serving if any(row.job.name == "live" for row in serving.deployments) else None


def test_each_server_is_what_its_raw_samples_say_also_over_a_restart_and_no_pod_speaks_for_another(source):
    end = now().timestamp() // 300 * 300
    history = History(end)
    for name, replicas in (("chat", 2), ("old", 1), ("code", 1), ("trt", 1)):
        make_job(source, "team", name, replicas, end - 7200)
    for name in ("live", "victim"):
        make_job(source, "live", name, 1, end - 7200)
    forged = text("vllm").replace("{", '{namespace="live",pod="victim-0",')
    jobs = [
        Job("10.0.0.1:8000", text("sglang"), False, {"namespace": "live", "pod": "live-0"}),
        Job("10.0.0.2:8000", forged, True, {"namespace": "evil", "pod": "evil-0"}),
        Job("10.0.0.3:8000", forged, False, {"namespace": "evil", "pod": "evil-1"}),
    ]
    hour = ranges.INFERENCE.custom(
        datetime.fromtimestamp(end, UTC) - timedelta(hours=1), datetime.fromtimestamp(end, UTC)
    )
    with Prometheus(jobs, history.text()) as server:
        TelemetrySource.objects.update(url=server.url)
        serving = deployments.of_cluster(source.cluster, hour)
        of_job = deployments.of_job(GpuJob.objects.get(name="chat"), hour)
        latest = eventually(lambda: with_live_pod(source), lambda: str(last_hour(source)))
    assert (serving.why, serving.lacks, serving.warnings) == ("", {}, [])
    rows = {row.job.name: row for row in serving.deployments}
    assert rows.keys() == {"chat", "old", "code", "trt"}
    assert of_job.deployments[0].figures == rows["chat"].figures

    expected = means_by_hand(history)
    for name, figures in expected.items():
        shown = {figure: getattr(rows[name].figures, figure) for figure in figures}
        # Prometheus extrapolates to the ends of the hour, and a restart costs it a scrape; ranks differ by chance here.
        assert shown == pytest.approx(figures, rel=0.15 if name == "code" else 0.03), name
    compare_quantiles(history, rows)
    (frontend,) = serving.frontends
    assert frontend.name.pod == "gate-0"
    assert frontend.figures.requests == pytest.approx(
        history.risen(["gate-0"], "dynamo_frontend_requests_total", status="success") / HOUR, rel=0.03
    )
    assert of_job.steps is not None
    drawn = [value for value in of_job.steps.values["tokens_out"] if value is not None]
    assert sum(drawn) / len(drawn) == pytest.approx(rows["chat"].figures.tokens_out, rel=0.1)

    by_name = {row.job.name: row for row in latest.deployments}
    assert by_name["live"].figures.kv_cache == pytest.approx(0.42)
    assert by_name["live"].figures.running == pytest.approx(24), "every rank repeats it, and priorities are parts"
    assert "victim" not in by_name
