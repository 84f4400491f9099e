"""Inference servers beside their GPUs: figures against what the servers print, computed by hand from their texts."""

from __future__ import annotations

import html
import math
import re
from datetime import timedelta
from decimal import Decimal

import pytest
from django.test import Client

from clusters.connection import registry
from clusters.models import GpuJob
from gpus.models import TelemetrySource
from gpus.reports.inference import limits, quantiles
from gpus.reports.inference.figures import Figures
from gpus.telemetry import hosts
from simfleet.core import SimCluster
from simfleet.memory import SimFleet
from tests.clusters.factories import ClusterFactory
from tests.factories import TokenClient, UserFactory
from tests.gpus.inference.printed import parsed, scraped, target, text
from tests.gpus.peers.lives.watched import Watched

pytestmark = pytest.mark.django_db
HOUR = 3600.0
RANGE = "from=2026-11-21T11:00Z&to=2026-11-21T12:00Z"


class Served(Watched):
    """Two nodes for an hour of StatefulSets in the namespace team, whose pods hold a GPU each."""

    def __init__(self, clock, pods):
        super().__init__(clock.at - timedelta(hours=1), nodes=2, cluster=ClusterFactory(name="atlas"))
        for number, name in enumerate(pods):
            owner = {"kind": "StatefulSet", "name": name.rpartition("-")[0], "uid": "u", "controller": True}
            node, index = f"n{number % 2}", number // 2
            self.hears(name, node=node, gpus=1, ownerReferences=[owner])
            self.held[node, index] = (f"team/{name}", 0.3)
        self.store()
        self.go_on(3600)
        self.end = self.at.timestamp()
        self.sim = SimCluster(seed=1)
        for name in self.names:
            self.sim.add_node(name)
        self.sim.monitoring.install()
        hosts.forget(self.cluster.pk)
        self.source.refresh_from_db()
        self.user = UserFactory(is_superuser=True)

    def serve(self, pod, printed, *, namespace="team", until=0.0, **labels):
        until = until or self.end
        there = [scraped(target(namespace, pod, **labels), printed, until - HOUR, until)]
        self.sim.monitoring.scraped.append(lambda: there)

    def rest(self, path):
        answer = TokenClient(self.user).get(f"/api/v1/gpus/{path}")
        assert answer.status_code == 200, answer.content
        return answer.json()

    def list(self):
        return self.rest(f"inference?cluster=atlas&{RANGE}")

    def only(self):
        (deployment,) = self.list()["deployments"]
        return deployment

    def page(self, path):
        client = Client()
        client.force_login(self.user)
        answer = client.get(path)
        assert answer.status_code == 200
        return answer.content.decode()

    def words(self, path):
        return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", self.page(path))))


@pytest.fixture
def served(clock, request):
    made = Served(clock, getattr(request, "param", ["chat-0", "chat-1"]))
    with registry.override(made.cluster.pk, SimFleet(made.sim)):
        yield made


def total(name, metric, **labels):
    return sum(
        value
        for _, metric_name, own, value in parsed(text(name))
        if metric_name == metric and labels.items() <= own.items()
    )


def by_hand(name, metric, share, copies=1):
    """Return the quantile of a printed histogram, of the buckets of all its series: linear within the bucket."""
    buckets = {}
    for _, metric_name, own, value in parsed(text(name)):
        if metric_name == f"{metric}_bucket":
            boundary = float(own["le"])
            buckets[boundary] = buckets.get(boundary, 0.0) + value * copies
    rank, low, below = share * buckets[math.inf], 0.0, 0.0
    for boundary, count in sorted(buckets.items()):
        if count >= rank:
            return low + (boundary - low) * (rank - below) / (count - below)
        low, below = boundary, count
    raise AssertionError


def test_figures_of_two_replicas_are_the_sums_of_what_they_print_and_no_renamed_metric_counts_twice(served):
    for pod in ("chat-0", "chat-1"):
        served.serve(pod, text("vllm"))
    row = served.only()
    figures = row["figures"]
    assert (row["name"], row["kind"], row["replicas"], row["replicas_scraped"]) == ("chat", "StatefulSet", 2, 2)
    assert (row["servers"], row["models"]) == (["vLLM"], ["meta-llama/Llama-3.3-70B-Instruct"])
    seconds = figures["seconds"]
    assert seconds == pytest.approx(HOUR, abs=1)
    expected = {
        "requests_running": 2 * total("vllm", "vllm:num_requests_running"),
        "requests_waiting": 2 * total("vllm", "vllm:num_requests_waiting"),
        "kv_cache": total("vllm", "vllm:kv_cache_usage_perc") / 2,
        "kv_cache_most": 0.96,
        "output_tokens": 2 * total("vllm", "vllm:generation_tokens_total"),
        "output_tokens_per_second": 2 * total("vllm", "vllm:generation_tokens_total") / HOUR,
        "input_tokens_per_second": 2 * total("vllm", "vllm:prompt_tokens_total") / HOUR,
        "requests_per_second": 2 * total("vllm", "vllm:request_success_total") / HOUR,
        "preemptions": 2 * total("vllm", "vllm:num_preemptions_total"),
        "queue_seconds": 9360.0 / 7200.0,
    }
    assert {name: figures[name] for name in expected} == pytest.approx(expected, rel=1e-3)
    for field, metric in (
        ("time_to_first_token", "vllm:time_to_first_token_seconds"),
        ("time_per_output_token", "vllm:inter_token_latency_seconds"),
    ):
        shown = figures[field]
        assert shown["p50"] == pytest.approx(by_hand("vllm", metric, 0.5, 2))
        assert shown["p95"] == pytest.approx(by_hand("vllm", metric, 0.95, 2))
        assert not shown["p95_is_least"]
    assert row["gpus"] == pytest.approx(2)
    assert row["output_tokens_per_second_per_gpu"] == pytest.approx(500, rel=1e-3)
    assert row["gpus_busy"] == pytest.approx(0.3)
    assert row["finding"]["name"] == "memory"
    assert {"24.0", "94 %", "30 %"} <= {*re.findall(r"[\d.]+ %|\d+\.\d", row["finding"]["text"])}


def test_the_jobs_page_the_list_and_rest_have_the_same_figures_and_steps_over_time(served):
    for pod in ("chat-0", "chat-1"):
        served.serve(pod, text("vllm"))
    row = served.only()
    figures = row["figures"]
    job = GpuJob.objects.get()
    body = served.rest(f"jobs/{job.pk}/inference?{RANGE}")
    assert body["deployments"] == [row]
    assert [value for value in body["steps"]["values"]["waiting"] if value] == [pytest.approx(24)] * 24
    assert body["steps"]["values"]["ttft_p95"][-1] == pytest.approx(figures["time_to_first_token"]["p95"])
    page = served.words(f"/gpus/jobs/{job.pk}/inference/live/?{RANGE}")
    listed = served.words(f"/gpus/inference/clusters/{served.cluster.pk}/live/?{RANGE}")
    for shown in (page, listed):
        assert row["finding"]["text"] in shown
        assert "1,000" in shown
        assert "500 tokens/s each" in shown
        assert "94 %" in shown
    assert f"/gpus/jobs/{job.pk}/inference/live/" in served.page(f"/gpus/jobs/{job.pk}/")


def test_a_second_scrape_of_the_same_server_changes_nothing(served):
    printed = text("vllm_v0")
    served.serve("chat-0", printed)
    served.serve("chat-0", printed, job="kubernetes-pods", endpoint="http")
    figures = served.only()["figures"]
    assert served.only()["replicas_scraped"] == 1
    assert figures["output_tokens"] == pytest.approx(360_000, rel=1e-3)
    assert (figures["requests_running"], figures["kv_cache"]) == pytest.approx((10, 0.5))
    assert figures["time_per_output_token"]["p50"] == pytest.approx(0.0175), "under its older name"
    assert figures["queue_seconds"] is None


def test_each_server_is_read_in_its_own_format(served):
    served.serve("chat-0", text("sglang"))
    figures = served.only()["figures"]
    assert (figures["requests_running"], figures["requests_waiting"], figures["kv_cache"]) == pytest.approx(
        (24, 3, 0.42)
    )
    assert figures["output_tokens_per_second"] == pytest.approx(800, rel=1e-3), "each rank has the scheduler's own"
    assert (figures["preemptions"], figures["queue_seconds"]) == pytest.approx((36, 0.05), rel=1e-3)
    assert figures["time_to_first_token"]["p50"] == pytest.approx(
        by_hand("sglang", "sglang:time_to_first_token_seconds", 0.5)
    )
    served.sim.monitoring.scraped.clear()
    served.serve("chat-0", text("triton"))
    row = served.only()
    figures = row["figures"]
    assert (figures["requests_running"], figures["requests_waiting"]) == (12, 2)
    assert figures["kv_cache"] == figures["kv_cache_most"] == pytest.approx(5000 / 6239)
    assert (figures["requests_per_second"], figures["output_tokens_per_second"]) == pytest.approx((1, 250), rel=1e-3)
    assert figures["queue_seconds"] == pytest.approx(0.05), "of the one model that a request waits for"
    slow = by_hand("triton", "nv_inference_first_response_histogram_ms", 0.95) / 1000
    assert figures["time_to_first_token"]["p95"] == pytest.approx(slow)
    assert figures["time_per_output_token"]["p50"] is None, "not exported is no zero"


def test_a_dynamo_worker_counts_by_its_engine_and_its_frontend_is_beside_it(served):
    served.serve("chat-0", text("vllm") + text("dynamo_worker"))
    served.serve("gateway-0", text("dynamo"))
    body = served.list()
    (row,), (frontend,) = body["deployments"], body["frontends"]
    assert row["servers"] == ["vLLM", "Dynamo worker"]
    assert row["figures"]["requests_running"] == pytest.approx(76)
    assert row["figures"]["kv_cache"] == pytest.approx(0.94)
    figures = frontend["figures"]
    assert (frontend["pod"], frontend["servers"]) == ("gateway-0", ["Dynamo frontend"])
    assert (figures["requests_running"], figures["requests_waiting"]) == (75, 15), "its count of work has both"
    assert (figures["requests_per_second"], figures["output_tokens_per_second"]) == pytest.approx((2, 500), rel=1e-3)
    of_job = served.rest(f"jobs/{GpuJob.objects.get().pk}/inference?{RANGE}")
    assert [entry["pod"] for entry in of_job["frontends"]] == ["gateway-0"]


def test_a_pod_cannot_speak_for_another_one(served):
    """Labels of its text are renamed by Prometheus; where a scrape honors them, no target is called so."""
    own = 'namespace="team",pod="chat-0",'
    claims = text("vllm").replace("{", "{" + own)
    served.serve("evil-0", claims, namespace="other")
    assert served.list()["deployments"] == []
    labels = target("other", "evil-0")
    forged = scraped(
        {}, claims.replace("{", f'{{instance="{labels["instance"]}",job="{labels["job"]}",'), 0, served.end
    )
    served.sim.monitoring.scraped.append(lambda: [forged])
    assert served.list()["deployments"] == [], "up has no such target"
    served.serve("chat-0", text("vllm_v0").replace("Llama-3.3", "<script>" + "x" * 500))
    (model,) = served.only()["models"]
    assert len(model) <= 120
    raw = served.page(f"/gpus/inference/clusters/{served.cluster.pk}/live/?{RANGE}")
    assert "&lt;script&gt;" in raw
    assert "<script>x" not in raw


def test_what_is_no_number_is_unknown_and_the_rest_stays(served):
    nonsense = {
        "vllm:num_requests_running": "NaN", "vllm:num_requests_waiting": "+Inf", "vllm:gpu_cache_usage_perc": "96",
        "vllm:generation_tokens_total": "1e300",
    }  # fmt: skip
    printed = text("vllm_v0")
    for metric, value in nonsense.items():
        printed = re.sub(rf"^({metric}{{.*}}) \S+$", rf"\1 {value}", printed, flags=re.MULTILINE)
    served.serve("chat-0", printed)
    row = served.only()
    for name in ("requests_running", "requests_waiting", "kv_cache", "output_tokens", "kv_cache_most"):
        assert row["figures"][name] is None, name
    assert (row["finding"], row["cost_per_million_output_tokens"]) == (None, None)
    assert row["figures"]["input_tokens_per_second"] == pytest.approx(100, rel=1e-3)


def test_cost_is_the_cost_pages_and_is_none_without_a_price(served, settings):
    served.serve("chat-0", text("vllm"))
    served.serve("chat-1", text("vllm"))
    assert served.only()["cost"] is None
    settings.SETPOINT_GPU_PRICES = {"NVIDIA-H100-80GB-HBM3": "4.00", "H100": "4.00"}
    row = served.only()
    job = GpuJob.objects.get()
    whole = served.rest(f"jobs/{job.pk}")
    assert Decimal(row["cost"]) > 0
    assert Decimal(row["cost"]) == pytest.approx(Decimal(str(whole["cost"])), rel=Decimal("1e-4"))
    per_million = Decimal(row["cost"]) / Decimal(row["figures"]["output_tokens"]) * 1_000_000
    assert Decimal(row["cost_per_million_output_tokens"]) == pytest.approx(per_million)
    assert f"{per_million:.2f}" in served.words(f"/gpus/jobs/{job.pk}/inference/live/?{RANGE}")


def test_without_servers_or_a_prometheus_the_reason_is_given_and_nothing_of_others_is_shown(served):
    job = GpuJob.objects.get()
    body = served.rest(f"jobs/{job.pk}/inference")
    assert (body["deployments"], body["steps"]) == ([], None)
    assert "namespace and pod" in body["why"]
    assert body["why"] in served.words(f"/gpus/jobs/{job.pk}/inference/live/")
    served.serve("chat-0", text("vllm"))
    answers = served.sim.proxies.answerers["services"]
    real = answers[-1]

    def partly(service, port, path, query):
        return (503, "{}") if "preemptions" in query.get("query", "") else real(service, port, path, query)

    answers[-1] = partly
    body = served.list()
    assert list(body["lacks"]) == ["preemptions"]
    assert body["deployments"][0]["figures"]["requests_running"] == pytest.approx(76)
    assert "Not everything was answered" in served.words(f"/gpus/inference/clusters/{served.cluster.pk}/live/")
    stranger = TokenClient(UserFactory(roles=["viewer@env:production"]))
    assert stranger.get(f"/api/v1/gpus/jobs/{job.pk}/inference").status_code == 404
    assert "no such cluster" in str(stranger.get("/api/v1/gpus/inference?cluster=atlas").json())
    client = TokenClient(served.user)
    for query, field in (("window=2h", "window"), ("since=1", "since"), ("from=x", "from"), ("", "cluster")):
        path = f"/api/v1/gpus/inference?{query}" + ("&cluster=atlas" if query else "")
        answer = client.get(path)
        assert answer.status_code in (400, 422), query
        assert field in str(answer.json())
    TelemetrySource.objects.update(is_enabled=False)
    assert "in its settings" in served.list()["why"]
    page = served.words("/gpus/inference/")
    assert "atlas" in page


def test_queries_do_not_grow_with_the_pods(served, django_assert_max_num_queries):
    from clusters.models import Cluster
    from gpus.reports import ranges
    from gpus.reports.inference import deployments

    for pod in ("chat-0", "chat-1"):
        served.serve(pod, text("vllm_v0"))
    with django_assert_max_num_queries(8):
        deployments.of_cluster(Cluster.objects.get(pk=served.cluster.pk), ranges.INFERENCE.preset("1h"))
    with django_assert_max_num_queries(8):
        deployments.of_job(GpuJob.objects.select_related("cluster").get(), ranges.INFERENCE.preset("1h"))


# ── Pure ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
def figures(**changed):
    values = {"seconds": 4 * HOUR, "gpu_seconds": 8 * HOUR, "waiting": 0.0, "running_most": 1.0, "kv_most": 0.1}
    return Figures(**values | {"kv_cache": 0.05} | changed)


@pytest.mark.parametrize(
    ("of", "busy", "name"),
    [
        (figures(waiting=6.0, kv_cache=0.97, preemptions=12.0), 0.4, "memory"),
        (figures(waiting=6.0, kv_cache=0.97), None, "memory"),
        (figures(waiting=6.0, kv_cache=0.4), 0.2, "batching"),
        (figures(waiting=6.0, kv_cache=0.4), 0.9, "compute"),
        (figures(waiting=6.0, kv_cache=0.4), None, None),  # what the GPUs did is not known
        (figures(waiting=6.0, kv_cache=None), 0.2, None),  # the cache may be what they wait for
        (figures(waiting=6.0, kv_cache=0.4), 0.65, None),
        (figures(), 0.1, "over_provisioned"),
        (figures(kv_most=0.6), 0.1, None),  # a burst needs it
        (figures(running_most=30.0), 0.1, None),
        (figures(), 0.9, None),
        (figures(seconds=600.0), 0.1, None),
        (figures(waiting=None), 0.1, None),
    ],
)
def test_a_limit_is_named_only_where_the_figures_show_it(of, busy, name):
    finding = limits.of(of, busy, replicas=2, scraped=2)
    assert (finding and finding.name) == name
    if finding and of.waiting:
        assert "6.0 requests" in finding.text
        assert f"{100 * of.kv_cache:.0f} %" in finding.text
    if name == "over_provisioned":
        assert limits.of(of, busy, replicas=2, scraped=1) is None, "a replica that is not scraped may be busy"


def test_quantiles_are_of_summed_buckets_and_beyond_the_last_boundary_at_least_that():
    fast, slow = {0.1: 90.0, 1.0: 90.0, math.inf: 90.0}, {0.1: 0.0, 1.0: 10.0, math.inf: 10.0}
    together = quantiles.summed([fast, slow])
    assert quantiles.quantile(0.95, together).value == pytest.approx(0.1 + 0.9 * 0.5)
    assert quantiles.quantile(0.5, together).value == pytest.approx(0.1 * 50 / 90)
    other = {0.2: 5.0, 1.0: 10.0, math.inf: 20.0}
    mixed = quantiles.summed([fast, other])
    assert mixed == {1.0: 100.0, math.inf: 110.0}
    assert quantiles.quantile(0.95, mixed) == (1.0, True)
    for empty in ({}, {math.inf: 5.0}, {1.0: 0.0, math.inf: 0.0}):
        assert quantiles.quantile(0.5, empty) is None
    assert quantiles.summed([{}, {1.0: 0.0, math.inf: 0.0}]) == {}
