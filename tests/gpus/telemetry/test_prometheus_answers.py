"""Answers of a Prometheus that are not the whole truth: old, partial, without numbers, too large, foreign words."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

import pytest

from clusters.fleet import Reply
from gpus.models import GpuDevice
from gpus.telemetry import prometheus
from gpus.telemetry.source import Gathering
from tests.gpus.telemetry.prometheus_server import QUERIES, Auth, State, asks_for, failing, good, gpu, vector

pytestmark = pytest.mark.django_db


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
        return status, json.dumps(whole).encode() if asks_for("DCGM_FI_DEV_GPU_UTIL", query) else body

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


ECHO = "bad header {} <a href='https://evil.example'>renew it</a> [here](https://evil.example) <!channel>"


@pytest.mark.parametrize(
    ("auth", "sent"),
    [(Auth.BEARER, "Bearer s3cret"), (Auth.BASIC, "Basic " + base64.b64encode(b"ann:s3cret").decode())],
)
def test_what_it_answers_is_told_without_secrets_and_markup(read, auth, sent):
    """A proxy that echoes the request; the sentence goes into alerts, mails and chats."""

    def some(query: str) -> tuple[int, bytes]:
        return failing(422, ECHO.format(sent))("") if asks_for("DCGM_FI_DEV_FB_USED", query) else good(query)

    for say in (failing(500, ECHO.format(sent)), some):
        source = read(say, auth=auth, username="ann", secret="s3cret")
        for text in (source.sentence, *(why for _, why in source.reasons)):
            assert "s3cret" not in text
            assert sent.split()[1] not in text
            assert not set(text) & set("<>")
            assert "](" not in text
        assert "bad header" in source.sentence
        assert "renew it" in source.sentence


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
    queries: list[str] = []

    def ask(path: str, query: Mapping[str, str], limit: int, seconds: float) -> Reply:
        queries.append(query["query"])
        return Reply(200, vector() if "timestamp" in query["query"] else body)

    into = Ending(when=clock.at, deadline=0.0)
    heard = sum(1 for _ in prometheus.Prometheus(ask, title="Prometheus").series(into))

    assert 0 < heard < 20_000 * 2
    assert len(queries) < QUERIES
    assert into.unanswered == QUERIES - (len(queries) - 2)
    assert any("larger than the time for one reading" in why for _, why in into.reasons)
