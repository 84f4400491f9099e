"""Request ids, headers and the log."""

from __future__ import annotations

import json
import logging
import sys

import pytest
import structlog
from celery import shared_task
from django.test import Client

from audit.models import Record
from audit.services import record
from common.requests import REQUEST_ID, request_id, working_on
from config import logs
from config.celery import HEADER, app
from tests.factories import PASSWORD, TokenClient, UserFactory


@pytest.mark.parametrize("sent_id", ["abcdef12", "a" * 64, "req:1.2_3-4"])
def test_a_sane_request_id_is_taken_and_answered(sent_id: str) -> None:
    assert Client().get("/healthz", headers={"X-Request-ID": sent_id})["X-Request-ID"] == sent_id


@pytest.mark.parametrize("sent_id", ["", "short", "a" * 65, "a b c d e f", "abcdefgh\nX: y", "ä" * 10, "<script>12"])
def test_any_other_request_id_is_replaced(sent_id: str) -> None:
    given = Client().get("/healthz", headers={"X-Request-ID": sent_id})["X-Request-ID"]
    assert given != sent_id
    assert REQUEST_ID.fullmatch(given)


def test_a_request_leaves_no_id_behind() -> None:
    first = Client().get("/healthz")["X-Request-ID"]
    assert request_id() == ""
    assert Client().get("/healthz")["X-Request-ID"] != first


@pytest.mark.django_db
def test_the_audit_record_of_a_change_carries_the_request_id_of_its_answer() -> None:
    client = TokenClient(UserFactory(roles=["admin"]))
    answer = client.post("/api/v1/users", {"email": "a@example.com"}, headers={"X-Request-ID": "change-0001"})
    assert answer["X-Request-ID"] == "change-0001"
    assert Record.objects.get(action="user.create").request_id == "change-0001"


@shared_task(name="tests.note")
def note() -> None:
    record(by="task", action="test.note", target="test:1")


@pytest.mark.django_db
def test_a_task_works_under_the_id_of_the_request_that_sent_it() -> None:
    app.conf.task_always_eager = False
    sent = {}
    with working_on("request-0001"), app.connection_for_write() as connection:
        queue = connection.SimpleQueue("celery")
        note.apply_async(connection=connection)
        message = queue.get(timeout=30)
        sent = message.headers
        message.ack()
    assert sent[HEADER] == "request-0001"
    note.apply(headers=sent)
    assert Record.objects.get().request_id == "request-0001"
    assert request_id() == ""


@pytest.mark.django_db
def test_a_task_of_the_beat_gets_an_id_of_its_own() -> None:
    note.apply()
    assert REQUEST_ID.fullmatch(Record.objects.get().request_id)


@pytest.mark.parametrize("path", ["/healthz", "/login/", "/nowhere/", "/api/v1/me", "/static/setpoint.css"])
@pytest.mark.django_db
def test_every_answer_carries_strict_headers(path: str) -> None:
    answer = Client().get(path)
    policy = answer["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer["X-Content-Type-Options"] == "nosniff"
    assert answer["X-Frame-Options"] == "DENY"
    assert answer["Referrer-Policy"] == "same-origin"


@pytest.mark.django_db
def test_pages_are_not_kept_by_caches_and_cookies_not_sent_elsewhere() -> None:
    client = Client()
    answer = client.post("/login/", {"email": UserFactory().email, "password": PASSWORD})
    assert "no-store" in answer["Cache-Control"]
    cookie = client.cookies["sessionid"]
    assert (cookie["httponly"], cookie["samesite"]) == (True, "Lax")


def _formatted(**fields: object) -> dict[str, object]:
    formatter = logs.configuration("INFO", "json")["formatters"]["lines"]
    made = formatter["()"](foreign_pre_chain=formatter["foreign_pre_chain"], processors=formatter["processors"])
    line = logging.LogRecord("x", logging.INFO, __file__, 1, "said %s", ("it",), None)
    line.__dict__.update(fields)
    answer: dict[str, object] = json.loads(made.format(line))
    return answer


def test_a_log_line_is_json_with_the_request_id() -> None:
    with working_on("request-0002"):
        line = _formatted()
    assert (line["event"], line["request_id"], line["level"]) == ("said it", "request-0002", "info")
    assert "timestamp" in line


def _formatter(style: str) -> structlog.stdlib.ProcessorFormatter:
    lines = logs.configuration("INFO", style)["formatters"]["lines"]
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=lines["foreign_pre_chain"], processors=lines["processors"]
    )


def _failed(text: str) -> logging.LogRecord:
    try:
        raise ValueError(text)
    except ValueError:
        return logging.LogRecord("x", logging.ERROR, "x", 1, "it failed", (), sys.exc_info())


SECRET_TEXTS = (
    f"/link/{'A' * 43}/",
    f"https://setpoint.example/link/{'A' * 43}/",
    f"/setup/?token={'A' * 32}",
    f"sp_0123456789ab.{'A' * 43}",
)


@pytest.mark.parametrize("style", ["json", "console"])
@pytest.mark.parametrize("secret", SECRET_TEXTS)
def test_no_link_or_token_is_in_a_line_of_the_log(style: str, secret: str) -> None:
    """A link to set a password is good until its owner used it, and a reader of logs is not its owner."""
    records = [
        logging.LogRecord("x", logging.ERROR, "x", 1, "Not found: %s", (secret,), None),
        logging.LogRecord("x", logging.ERROR, "x", 1, f"Not found: {secret}", (), None),
        *([_failed(secret)] if style == "json" else []),
    ]
    for log_record in records:
        line = _formatter(style).format(log_record)
        assert "ound" in line or "failed" in line
        assert "AAAA" not in line


def test_the_line_of_a_request_names_no_link() -> None:
    seen = logs.mask_secrets(None, "", {"event": "request", "path": f"/link/{'A' * 43}/", "status": 200})
    assert seen["path"].startswith("/link/")
    assert "AAAA" not in seen["path"]


def test_a_readable_traceback_prints_no_variables() -> None:
    line = _formatter("console").format(_failed("short"))
    assert "ValueError" in line
    assert "locals" not in line
    assert "text = " not in line


def test_secrets_are_masked_in_the_log() -> None:
    event = logs.mask_secrets(None, "", {"event": "token made", "password": "p", "api_token": "t", "user": "u"})
    assert event == {"event": "token made", "password": "••••••", "api_token": "••••••", "user": "u"}
