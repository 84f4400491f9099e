from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest
from django.db import DatabaseError, connection
from django.test import Client

from audit import tasks
from clusters.models import Cluster, Node, RowCheck, Watcher
from common.clock import now
from jobs.engine import sweeping
from jobs.models import Freeze
from tests.clusters.factories import ClusterFactory
from tests.factories import UserFactory

pytestmark = pytest.mark.django_db


def ready() -> tuple[int, dict]:
    answer = Client().get("/readyz")
    return answer.status_code, answer.json()


def test_alive_says_so_without_the_database(django_assert_num_queries) -> None:
    with django_assert_num_queries(0):
        assert Client().get("/healthz").content == b"ok\n"


def test_a_silent_sealer_is_told_of_but_takes_no_page_away(clock) -> None:
    tasks.seal()
    assert ready() == (
        200,
        {"status": "ready", "checks": dict.fromkeys(("database", "broker", "sealer", "watch"), "ok")},
    )
    clock.forward(61)
    status, body = ready()
    assert (status, body["status"]) == (200, "degraded")
    assert body["checks"]["sealer"] == "silent since 2026-11-21 12:00:00 UTC"


def test_a_restore_is_told_of_until_an_administrator_confirms_it() -> None:
    tasks.seal()
    freeze = Freeze.objects.create(reason=f"{Freeze.RESTORED} of yesterday")
    status, body = ready()
    assert (status, body["status"], body["checks"].get("restore")) == (
        200, "degraded", "not confirmed: an administrator lifts its freeze",
    )  # fmt: skip
    Freeze.objects.filter(pk=freeze.pk).update(lifted_at=now())
    assert "restore" not in ready()[1]["checks"]


def test_a_cluster_that_nobody_watches_is_told_of(clock) -> None:
    tasks.seal()
    cluster = Cluster.objects.create(uid="u", name="n", server="https://x", credential=b"", created_at=now())
    assert ready()[1]["checks"]["watch"] == "ok"  # just connected
    clock.forward(61)
    tasks.seal()
    assert ready()[1]["checks"]["watch"] == "1 clusters are not watched"
    Cluster.objects.filter(pk=cluster.pk).update(watch_lease_until=now() + timedelta(seconds=10))
    assert ready()[1]["checks"]["watch"] == "ok"


def test_without_the_database_it_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise DatabaseError("secret-host refused")

    monkeypatch.setattr(connection, "cursor", refuse)
    assert ready() == (503, {"status": "not ready", "checks": {"database": "unreachable"}})


@pytest.fixture
def no_broker(settings, monkeypatch: pytest.MonkeyPatch) -> None:
    from config import health

    settings.CELERY_BROKER_URL = "redis://127.0.0.1:1/0"
    monkeypatch.setattr(
        health.app, "connection_for_write", lambda **kw: health.app.connection("redis://127.0.0.1:1/0", **kw)
    )


def test_without_the_broker_pages_stay_and_it_is_told_of(no_broker: None, clock) -> None:
    tasks.seal()
    status, body = ready()
    assert (status, body["status"], body["checks"]["broker"]) == (200, "degraded", "away: slower")
    assert sweeping.claim("celery", "worker-1")
    assert ready()[1]["checks"]["broker"] == "away since 2026-11-21 12:00:00 UTC: slower"


def test_a_broker_that_answers_and_brings_nothing_is_told_of(no_broker: None, monkeypatch, clock) -> None:
    monkeypatch.setattr("config.sending.answers", lambda app: True)
    tasks.seal()
    assert ready()[1]["checks"]["broker"] == "ok"
    sweeping.claim("celery", "worker-1")
    assert ready()[1]["checks"]["broker"] == "brings no sweep since 2026-11-21 12:00:00 UTC: slower"


def metrics(**extra) -> tuple[int, str]:
    answer = Client().get("/metrics", **extra)
    return answer.status_code, answer.content.decode()


def test_metrics_answer_this_machine_only() -> None:
    assert metrics()[0] == 200
    assert metrics(REMOTE_ADDR="192.0.2.1")[0] == 403
    assert metrics(headers={"X-Forwarded-For": "127.0.0.1"})[0] == 403
    assert metrics(headers={"Forwarded": "for=127.0.0.1"})[0] == 403
    assert metrics(REMOTE_ADDR="")[0] == 403
    assert metrics(REMOTE_ADDR="::1")[0] == 200


def test_with_a_metrics_token_only_its_bearer_is_answered(settings) -> None:
    settings.SETPOINT_METRICS_TOKEN = "s3cret"
    assert metrics()[0] == 403
    assert metrics(headers={"Authorization": "Bearer other"})[0] == 403
    assert metrics(REMOTE_ADDR="192.0.2.1", headers={"Authorization": "Bearer s3cret"})[0] == 200


def test_metrics_count_by_state_in_a_fixed_number_of_queries(django_assert_num_queries) -> None:
    for n in range(3):
        Cluster.objects.create(uid=f"u{n}", name=f"n{n}", server="https://x", credential=b"", observed_at=now())
    UserFactory()
    with django_assert_num_queries(27):
        _, text = metrics()
    assert 'setpoint_clusters{reach="never"} 3.0' in text
    assert "setpoint_audit_unsealed 0.0" in text
    assert "process_resident_memory_bytes" in text


def test_metrics_tell_what_differed_between_rows_and_objects() -> None:
    cluster = ClusterFactory(name="alpha")
    RowCheck.objects.create(cluster=cluster, kind="pods", checked_at=now(), checks=7, behind=2, unmended=1)
    metric_lines = Client().get("/metrics").content.decode().splitlines()
    assert 'setpoint_rows_checks_total{cluster="alpha",kind="pods"} 7.0' in metric_lines
    assert 'setpoint_rows_differed_total{cluster="alpha",difference="behind",kind="pods"} 2.0' in metric_lines
    assert 'setpoint_rows_differed_total{cluster="alpha",difference="missing",kind="pods"} 0.0' in metric_lines
    assert 'setpoint_rows_unmended_total{cluster="alpha",kind="pods"} 1.0' in metric_lines


def test_metrics_tell_since_when_the_broker_is_away(settings: Any, clock: Any) -> None:
    settings.EMBEDDED, settings.SETPOINT_HAS_BROKER = False, True

    def away() -> list[str]:
        return re.findall(r"^setpoint_broker_away_seconds (\S+)$", Client().get("/metrics").content.decode(), re.M)

    assert away() == ["0.0"]
    assert sweeping.claim(sweeping.CELERY, "worker-1")
    clock.forward(7)
    assert away() == ["7.0"]
    settings.SETPOINT_HAS_BROKER = False
    assert away() == ["0.0"], "none is away where there is none"


def test_metrics_tell_who_watches_how_much() -> None:
    at = now()
    for n, owner in enumerate(("p1", "p1", "p2", "died")):
        cluster = ClusterFactory()
        until = at - timedelta(seconds=5) if owner == "died" else at + timedelta(seconds=20)
        Cluster.objects.filter(pk=cluster.pk).update(watch_owner=owner, watch_lease_until=until)
        Watcher.objects.update_or_create(owner=owner, defaults={"lease_until": until})
        Node.objects.bulk_create(Node(cluster=cluster, uid=f"{n}-{i}", name=f"n{i}") for i in range(n))
    metric_lines = Client().get("/metrics").content.decode().splitlines()
    assert {line for line in metric_lines if line.startswith("setpoint_watch_")} == {
        'setpoint_watch_clusters{watcher="p1"} 2.0',
        'setpoint_watch_clusters{watcher="p2"} 1.0',
        'setpoint_watch_weight{watcher="p1"} 3.0',
        'setpoint_watch_weight{watcher="p2"} 3.0',
    }
