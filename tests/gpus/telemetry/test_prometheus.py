"""A Prometheus that is slow, wrong or lying: a plain sentence on the source, and what was stored before stays."""

from __future__ import annotations

import base64
import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.connection import registry
from gpus.metrics.findings import Findings
from gpus.models import GpuDevice, TelemetrySource
from gpus.services import polling
from gpus.telemetry import prometheus
from simfleet.core import SimCluster
from simfleet.memory import SimFleet
from tests.clusters.factories import ClusterFactory
from tests.controlplane.pki import Authority
from tests.gpus.telemetry.prometheus_server import (
    AUTHORITY,
    QUERIES,
    Auth,
    Kind,
    State,
    asks_for,
    failing,
    good,
    gpu,
    vector,
)

pytestmark = pytest.mark.django_db


def test_a_reading_asks_the_same_few_questions(read):
    source = read()
    assert (source.state, source.sentence, source.devices, source.asked) == (State.WELL, "", 1, QUERIES)
    assert GpuDevice.objects.get().values == {"busy": 0.8, "memory_used": 1024 * 1024**2}
    assert len(source.server.authorizations) == QUERIES + 1  # and how old the scrapes are
    assert QUERIES + 1 == 25  # docs/gpu.md says so


@pytest.mark.parametrize(
    ("auth", "header"),
    [
        (Auth.NONE, None),
        (Auth.BEARER, "Bearer s3cret"),
        (Auth.BASIC, "Basic " + base64.b64encode(b"ann:s3cret").decode()),
    ],
)
def test_each_way_to_authenticate_reaches_it(read, auth, header):
    source = read(auth=auth, username="ann", secret="s3cret")
    assert source.state == State.WELL
    assert set(source.server.authorizations) == {header}
    assert b"s3cret" not in bytes(source.secret)


def test_a_client_certificate_is_shown(read):
    certificate, key = AUTHORITY.client("setpoint")
    source = read(auth=Auth.CERTIFICATE, certificate=certificate, secret=key)
    assert source.state == State.WELL
    assert {peer.get("commonName") for peer in source.server.peers} == {"setpoint"}


def test_no_secret_goes_over_http(read):
    source = read(auth=Auth.BEARER, secret="s3cret", url="http://127.0.0.1:9")
    assert source.state == State.FAILED
    assert "is not https" in source.sentence


@pytest.mark.parametrize(
    ("say", "words"),
    [
        (failing(401), "does not accept the credentials (401)"),
        (failing(404), "no Prometheus at this address"),
        (failing(302), "redirect"),
        (failing(503, "starting"), "overloaded, or is just starting (503): starting"),
        (failing(500, "boom"), "answered 500: boom"),
        (lambda _: (200, b"<html>hello"), "not Prometheus"),
        (failing(422, "query processing would load too many samples"), "(422): query processing would load too many"),
        (lambda query: (200, good(query)[1][:-30]), "breaks off"),
    ],
)
def test_what_goes_wrong_is_said_and_what_was_known_stays(read, say, words):
    assert read().state == State.WELL
    source = read(say)
    assert source.state == State.FAILED
    assert words in source.sentence
    assert GpuDevice.objects.seen().get().values["busy"] == 0.8
    assert source.failures == 1


def test_a_wrong_certificate_is_no_prometheus(read):
    source = read(ca=Authority().pem)
    assert source.state == State.FAILED
    assert "certificate is not accepted" in source.sentence
    assert source.server.authorizations == []


def test_one_that_is_slow_is_left_in_time(read, monkeypatch):
    monkeypatch.setattr(prometheus, "CALL_SECONDS", 0.2)
    over = threading.Event()

    def say(query: str) -> tuple[int, bytes]:
        over.wait(2)
        return good(query)

    source = read(say)
    over.set()
    assert source.state == State.FAILED
    assert "no answer within" in source.sentence


def test_more_bytes_than_any_fleet_has_are_not_read(read, monkeypatch):
    monkeypatch.setattr(prometheus, "MOST_BYTES", 10_000)
    source = read(lambda _: (200, vector(*((gpu(uuid=f"GPU-{n}"), 1) for n in range(1000)))))
    assert source.state == State.FAILED
    assert "longer than 10,000 bytes" in source.sentence


def test_more_series_than_any_fleet_has_are_left_unread(read, monkeypatch):
    monkeypatch.setattr(prometheus, "MAX_SERIES", 10)
    source = read(lambda _: (200, vector(*((gpu("DCGM_FI_DEV_GPU_TEMP", f"GPU-{n}"), 40) for n in range(1000)))))
    assert GpuDevice.objects.count() <= 10
    assert "series_over_limit" in {code for code, *_ in source.findings}
    assert source.dropped


def test_one_query_that_fails_costs_its_metrics_and_no_more(read):
    def say(query: str) -> tuple[int, bytes]:
        return failing(422, "too many")("") if asks_for("DCGM_FI_DEV_FB_USED", query) else good(query)

    source = read(say)
    assert (source.state, source.unanswered) == (State.PARTLY, 1)
    assert source.sentence.startswith(f"1 of {QUERIES} queries returned nothing. query")
    assert GpuDevice.objects.get().values == {"busy": 0.8}


def test_what_is_no_number_or_no_series_is_left_out_and_counted(read):
    def say(query: str) -> tuple[int, bytes]:
        odd = [{"metric": 5}, 7, {"metric": {}, "value": ["x", "y"]}]
        known = json.loads(
            vector(
                (gpu(), "NaN"),
                (gpu("DCGM_FI_DEV_GPU_TEMP"), "+Inf"),
                (gpu("DCGM_FI_DEV_POWER_USAGE", pod="x" * 10_240), 70),
            )
        )
        known["data"]["result"] += odd
        return 200, json.dumps(known).encode() if asks_for("DCGM_FI_DEV_POWER_USAGE", query) else vector()

    source = read(say)
    assert GpuDevice.objects.get().values == {"power": 70}
    counts = {code: count for code, count, _ in source.findings}
    assert (counts["not_finite"], counts["lines_refused"], counts["labels_too_long"]) == (2, 3, 1)


TEXTS = st.one_of(st.text(max_size=12), st.sampled_from(['"', "\\", '},"value":[', '"__name__":"', "]}", "{", "é\n"]))


@given(st.lists(st.tuples(st.dictionaries(TEXTS, TEXTS, max_size=4), st.floats(allow_nan=False)), max_size=6))
def test_an_answer_is_read_alike_however_it_is_printed(series):
    """Compact, as Prometheus prints it, elements are cut up where they stand; else they are read as JSON is."""
    result = [
        {"metric": dict(sorted({**labels, "__name__": "x"}.items())), "value": [1.5, repr(value)]}
        for labels, value in series
    ]

    def points(**how):
        text = json.dumps({"data": {"result": result}}, **how)
        return list(prometheus._vector(text, prometheus._Labels(Findings())))

    expected = [({k: v for k, v in labels.items() if k != "__name__"}, value) for labels, value in series]
    for answer in (points(), points(separators=(",", ":")), points(separators=(",", ":"), ensure_ascii=False)):
        assert [(point.name, point.at) for point in answer] == [("x", 1.5)] * len(series)
        assert [(dict(point.labels), point.value) for point in answer] == expected


@pytest.mark.parametrize("skew", [-7200, 7200])
def test_a_clock_that_is_wrong_is_told_and_makes_nothing_old(read, clock, skew):
    def say(query: str) -> tuple[int, bytes]:
        at = clock.at.timestamp() + skew
        if "timestamp" in query:
            return 200, vector(({"instance": "n1:9400"}, at - 12), at=at)
        return good(query)

    source = read(say)
    assert source.state == State.WELL
    assert source.skew_seconds == skew
    assert f"7,200 s {'behind' if skew < 0 else 'ahead of'} Setpoint's" in source.sentence
    assert GpuDevice.objects.seen().exists()


def test_a_target_that_was_long_not_scraped_is_not_taken_for_now(read, clock):
    def say(query: str) -> tuple[int, bytes]:
        at = clock.at.timestamp()
        return (200, vector(({"instance": "n1:9400"}, at - 3600), at=at)) if "timestamp" in query else good(query)

    source = read(say)
    assert source.state == State.EMPTY
    assert "stale" in {code for code, *_ in source.findings}


def test_a_prometheus_in_the_cluster_is_asked_through_the_api_server(clock):
    simulated = SimCluster()
    simulated.ensure_namespace("monitoring")
    simulated.store.create("services", {"metadata": {"name": "prometheus", "namespace": "monitoring"}, "spec": {}})
    cluster, seen = ClusterFactory(), []

    def answer(service, port, path, query):
        seen.append((service["metadata"]["name"], port, path))
        return (lambda status, body: (status, body.decode()))(*good(query["query"]))

    simulated.proxies.answerers["services"].append(answer)
    source = TelemetrySource.objects.create(cluster=cluster, kind=Kind.SERVICE, service="monitoring/prometheus:9090")
    with registry.override(cluster.pk, SimFleet(simulated)):
        assert polling.tick(source.pk)
        source.refresh_from_db()
        assert (source.state, set(seen)) == (State.WELL, {("prometheus", "9090", "api/v1/query")})
        simulated.api.forbidden.add(("get", "services/proxy"))
        clock.forward(seconds=60)
        assert polling.tick(source.pk)
    source.refresh_from_db()
    assert source.state == State.FAILED
    assert "services/proxy" in source.sentence
    assert "deploy/setpoint-gpus.yaml" in source.sentence
