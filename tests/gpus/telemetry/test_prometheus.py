"""A Prometheus that is slow, wrong or lying: a plain sentence on the source, and what was stored before stays."""

from __future__ import annotations

import base64
import json
import ssl
import tempfile
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.connection import registry
from clusters.fleet import Reply
from gpus.metrics.findings import Findings
from gpus.models import GpuDevice, TelemetrySource
from gpus.services import polling
from gpus.telemetry import prometheus
from gpus.telemetry.source import Gathering
from simfleet.core import SimCluster
from simfleet.memory import SimFleet
from tests.clusters.factories import ClusterFactory
from tests.controlplane.pki import Authority

pytestmark = pytest.mark.django_db
Kind, Auth, State = TelemetrySource.Kind, TelemetrySource.Auth, TelemetrySource.State
AUTHORITY = Authority()
QUERIES = len(prometheus.queries())
Say = Callable[[str], "tuple[int, bytes]"]


class Server:
    """TLS on loopback; `say` answers a query with status and body. A client certificate is asked for, not required."""

    def __init__(self, say: Say) -> None:
        self.say, self.authorizations, self.peers = say, [], []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def log_message(self, *_: object) -> None: ...

            def do_GET(self) -> None:
                outer.authorizations.append(self.headers.get("Authorization"))
                outer.peers.append(dict(entry[0] for entry in (self.connection.getpeercert() or {}).get("subject", ())))
                query = parse_qs(urlsplit(self.path).query).get("query", [""])[0]
                status, body = outer.say(query)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "server.pem").write_text("".join(AUTHORITY.server(["127.0.0.1"])))
            context.load_cert_chain(Path(folder, "server.pem"))
        context.load_verify_locations(cadata=AUTHORITY.pem)
        context.verify_mode = ssl.CERT_OPTIONAL
        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        self._http.handle_error = lambda *_: None
        self._http.socket = context.wrap_socket(self._http.socket, server_side=True, do_handshake_on_connect=False)
        self.url = f"https://127.0.0.1:{self._http.server_port}"
        threading.Thread(target=self._http.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()


def vector(*series: tuple[dict[str, str], object], at: float = 1_790_000_000.0) -> bytes:
    result = [{"metric": labels, "value": [at, str(value)]} for labels, value in series]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


def gpu(name: str = "DCGM_FI_DEV_GPU_UTIL", uuid: str = "GPU-1", **more: str) -> dict[str, str]:
    return {"__name__": name, "gpu": "0", "UUID": uuid, "Hostname": "n1", "instance": "n1:9400", **more}


def good(query: str) -> tuple[int, bytes]:
    if "timestamp" in query:
        return 200, vector()
    values = {"DCGM_FI_DEV_GPU_UTIL|": 80, "DCGM_FI_DEV_FB_USED|": 1024}
    return 200, vector(*((gpu(name.strip("|")), value) for name, value in values.items() if name in query))


def failing(status: int, error: str = "") -> Say:
    return lambda _: (status, json.dumps({"status": "error", "errorType": "x", "error": error}).encode())


@pytest.fixture
def read(settings, clock):
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    servers: list[Server] = []
    cluster = ClusterFactory()

    def once(say: Say = good, *, secret: str = "", **fields: object) -> TelemetrySource:
        servers.append(server := Server(say))
        clock.forward(seconds=400)
        source, _ = TelemetrySource.objects.get_or_create(cluster=cluster)
        set_ = {"kind": Kind.PROMETHEUS, "url": server.url, "ca": AUTHORITY.pem, "due_at": clock.at, **fields}
        for name, value in set_.items():
            setattr(source, name, value)
        source.set_secret(secret)
        source.save()
        assert polling.tick(source.pk)
        source.refresh_from_db()
        source.server = server
        return source

    with registry.override(cluster.pk, SimFleet(SimCluster(seed=3))):
        yield once
    for server in servers:
        server.close()


def test_a_reading_asks_the_same_few_questions(read):
    source = read()
    assert (source.state, source.sentence, source.devices, source.asked) == (State.WELL, "", 1, QUERIES)
    assert GpuDevice.objects.get().values == {"busy": 0.8, "memory_used": 1024 * 1024**2}
    assert len(source.server.authorizations) == QUERIES + 1  # and how old the scrapes are
    assert QUERIES + 1 == 20  # docs/gpu.md says so


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


ECHO = "bad header {} <a href='https://evil.example'>renew it</a> [here](https://evil.example) <!channel>"


@pytest.mark.parametrize(
    ("auth", "sent"),
    [(Auth.BEARER, "Bearer s3cret"), (Auth.BASIC, "Basic " + base64.b64encode(b"ann:s3cret").decode())],
)
def test_what_it_answers_is_told_without_secrets_and_markup(read, auth, sent):
    """A proxy that echoes the request; the sentence goes into alerts, mails and chats."""

    def some(query: str) -> tuple[int, bytes]:
        return failing(422, ECHO.format(sent))("") if "DCGM_FI_DEV_FB_USED|" in query else good(query)

    for say in (failing(500, ECHO.format(sent)), some):
        source = read(say, auth=auth, username="ann", secret="s3cret")
        for told in (source.sentence, *(why for _, why in source.reasons)):
            assert "s3cret" not in told
            assert sent.split()[1] not in told
            assert not set(told) & set("<>")
            assert "](" not in told
        assert "bad header" in source.sentence
        assert "renew it" in source.sentence


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


class Ending(Gathering):
    """Time of a reading that is over after its deadline was looked at so often."""

    looks = 0

    @property
    def left(self) -> float:
        self.looks += 1
        return 20.0 if self.looks <= 40 else 0.0


def test_one_deadline_holds_for_all_answers_and_for_reading_them(clock):
    """Twenty thousand series a query took a minute to read, where a try promises 20 s."""
    body = vector(*((gpu("DCGM_FI_DEV_GPU_TEMP", f"GPU-{number}"), 40) for number in range(20_000)))
    asked: list[str] = []

    def ask(path: str, query: Mapping[str, str], limit: int, seconds: float) -> Reply:
        asked.append(query["query"])
        return Reply(200, vector() if "timestamp" in query["query"] else body)

    into = Ending(when=clock.at, deadline=0.0)
    heard = sum(1 for _ in prometheus.Prometheus(ask, title="Prometheus").series(into))

    assert 0 < heard < 20_000 * 2
    assert len(asked) < QUERIES
    assert into.unanswered == QUERIES - (len(asked) - 2)
    assert any("larger than the time for one reading" in why for _, why in into.reasons)


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
        return failing(422, "too many")("") if "DCGM_FI_DEV_FB_USED|" in query else good(query)

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
        return 200, json.dumps(known).encode() if "POWER_USAGE" in query else vector()

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

    said = [({k: v for k, v in labels.items() if k != "__name__"}, value) for labels, value in series]
    for found in (points(), points(separators=(",", ":")), points(separators=(",", ":"), ensure_ascii=False)):
        assert [(point.name, point.at) for point in found] == [("x", 1.5)] * len(series)
        assert [(dict(point.labels), point.value) for point in found] == said


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


def up(value: int, job: str = "dcgm") -> tuple[dict[str, str], int]:
    """Series of a target, as Prometheus makes it: 0 while it cannot be scraped."""
    return {"__name__": "up", "instance": "n1:9400", "job": job, "namespace": "gpu-operator", "pod": "dcgm-1"}, value


@pytest.mark.parametrize(
    ("targets", "is_current"),
    [([up(0)], False), ([up(1)], True), ([up(0), up(1, "second-job")], True), ([up(0), up(0, "second-job")], False)],
)
def test_gpus_of_a_target_that_is_down_are_not_current(read, targets, is_current):
    """Prometheus answers with last values where staleness markers lack (Thanos, an exporter with times of its own)."""

    def say(query: str) -> tuple[int, bytes]:
        return (200, vector(*targets)) if query.startswith("up and") else good(query)

    source = read(say)

    assert GpuDevice.objects.seen().exists() == is_current
    assert source.state == (State.WELL if is_current else State.EMPTY)
    counts = {code: (count, example) for code, count, example in source.findings}
    assert counts.get("target_down") == (None if is_current else (1, "n1:9400"))


@pytest.mark.parametrize("where", ["behind the data", "before the data"])
def test_an_answer_in_part_is_not_called_whole(read, where):
    """Thanos and Mimir answer 200 with warnings where a store was away."""

    def say(query: str) -> tuple[int, bytes]:
        status, body = good(query)
        answer, warned = json.loads(body), {"warnings": ["store <b>s-3</b>\x00 is away", "no more"]}
        whole = answer | warned if where == "behind the data" else warned | answer
        return status, json.dumps(whole).encode() if "DCGM_FI_DEV_GPU_UTIL|" in query else body

    source = read(say)

    assert source.state == State.PARTLY
    assert source.sentence.startswith(f"1 of {QUERIES} queries returned a part. query")
    assert source.sentence.endswith("Prometheus warns: store s-3 is away")
    assert GpuDevice.objects.get().values["busy"] == 0.8, "what it did answer counts"


def test_notes_that_are_no_warnings_leave_a_reading_well(read):
    def say(query: str) -> tuple[int, bytes]:
        status, body = good(query)
        return status, json.dumps(
            json.loads(body) | {"warnings": [], "infos": ["metric might not be a counter"]}
        ).encode()

    assert read(say).state == State.WELL


def test_series_without_any_number_are_not_called_absent(read):
    source = read(lambda query: (200, vector((gpu(), "NaN"), (gpu("DCGM_FI_DEV_GPU_TEMP"), "NaN"))))

    assert source.state == State.EMPTY
    assert "has no series" not in source.sentence
    assert "series of GPUs, and none of them has a current value" in source.sentence


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
