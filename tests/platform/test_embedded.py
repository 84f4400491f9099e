"""One process does what production does in five."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import pytest
from celery import shared_task
from django.conf import settings

from audit import sealing
from audit.models import Chain, Record
from audit.services import record
from common.requests import working_on
from config import embedded
from jobs import tasks
from notices.channels import bodies
from tests import template_database
from tests.ports import free_port

ROOT = Path(__file__).resolve().parents[2]


def until(true: Callable[[], object], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.05)


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=20) as answer:  # the first one imports every page
        return str(answer.read().decode())


@shared_task(name="tests.embedded_note")
def note() -> None:
    record(by="task", action="test.note", target=f"thread:{threading.current_thread().name}")


@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("path", ["/api/v1/chart-archives", "/components/archives/"])
def test_a_body_that_is_far_too_large_is_refused_in_words_and_unread(path: str) -> None:
    """60 MB: above what the server itself takes, where only its headers are seen."""
    running = embedded.start(with_watch=False, with_beat=False)
    try:
        with socket.create_connection(("127.0.0.1", running.port), timeout=60) as talk:
            head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/octet-stream\r\n"
            talk.sendall(f"{head}Content-Length: 60000000\r\n\r\n".encode() + b"x" * 1000)
            answer = http.client.HTTPResponse(talk)
            answer.begin()
            text = answer.read().decode()
        assert answer.status == 413
        if path.startswith("/api"):
            assert answer.headers["Content-Type"] == "application/problem+json"
            assert "archive" in {error["field"] for error in json.loads(text)["errors"]}
        else:
            assert answer.headers["Content-Type"].startswith("text/html")
            assert "archive" in text
        assert get(f"{running.url}/healthz") == "ok\n"
    finally:
        assert running.stop()


@pytest.mark.django_db(transaction=True)
def test_web_worker_and_beat_run_in_one_process_and_stop_and_start_again() -> None:
    for run in (1, 2):
        running = embedded.start(with_watch=False)
        try:
            assert get(f"{running.url}/healthz") == "ok\n"
            with working_on(f"request-000{run}"):
                note.delay()
            until(Record.objects.filter(request_id=f"request-000{run}").exists)
            until(Chain.objects.filter(seq__gte=run).exists)  # beat → worker → sealer
            assert json.loads(get(f"{running.url}/readyz"))["status"] == "ready"
        finally:
            started = time.monotonic()
            is_quiet = running.stop()
        assert is_quiet
        assert time.monotonic() - started < embedded.STOP_SECONDS / 2
        assert not [thread for thread in running._threads if thread.is_alive()]
        with pytest.raises(OSError, match="refused"):
            get(f"{running.url}/healthz")
    assert not list(sealing.verify())
    assert Record.objects.filter(action="test.note").exclude(target="thread:MainThread").count() == 2


@pytest.mark.django_db(transaction=True)
def test_the_embedded_worker_takes_what_is_for_helm_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """Production has a worker of its own for this queue; here no other process would ever take it."""
    carried_out: list[UUID] = []
    monkeypatch.setattr(tasks.component_runner, "carry_out", carried_out.append)
    running = embedded.start(with_web=False, with_watch=False, with_beat=False)
    try:
        step = uuid4()
        tasks.helm.apply_async((str(step),), retry=False)
        until(lambda: carried_out)
    finally:
        running.stop()
    assert carried_out == [step]
    assert tasks.helm.app.amqp.router.route({}, tasks.helm.name)["queue"].name == "helm"


def test_a_worker_that_was_still_starting_when_it_was_asked_to_end_ends_when_it_has_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embedded, "STOP_SECONDS", 0.0)
    begun, going_on = threading.Event(), threading.Event()
    controller = embedded.WorkController

    def slow(**options: object) -> object:
        begun.set()
        going_on.wait(30)
        return controller(**options)

    monkeypatch.setattr(embedded, "WorkController", slow)
    running = embedded.start(with_web=False, with_beat=False, with_watch=False)
    assert begun.wait(30)
    assert not running.stop(), "it cannot have ended"

    going_on.set()
    [worker] = running._threads
    worker.join(30)
    assert not worker.is_alive()


STUBBORN = """
import faulthandler, sys, threading, time
faulthandler.dump_traceback_later(240, exit=True)  # so that a failure says where each thread was
from concurrent.futures import ThreadPoolExecutor
import django
from django.core.management import call_command
django.setup()
from config import embedded
from jobs import tasks
from notices.channels import bodies
from tests.ports import free_port
pool = ThreadPoolExecutor(1)

def work(stop):
    pool.submit(time.sleep, 600).result()

embedded.work, embedded.STOP_SECONDS = work, 0.5
call_command("up", port=int(sys.argv[1]))
"""


def test_a_task_that_does_not_end_keeps_no_process_alive(tmp_path: Path) -> None:
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SETPOINT_", "DJANGO_"))}
    environment |= {"SETPOINT_VAR": str(tmp_path), "DJANGO_SETTINGS_MODULE": "config.settings"}
    environment |= {"SETPOINT_AUDIT_KEY": settings.SETPOINT_AUDIT_KEY}  # which marked the template's rows
    if (migrated := template_database.template()) and migrated.is_file():  # seconds less; the test below migrates
        template_database.copied(migrated, tmp_path / "setpoint.sqlite3")
    logged = tmp_path / "stderr"
    with logged.open("w") as errors, subprocess.Popen(
        [sys.executable, "-c", STUBBORN, str(port)], cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True,
        stderr=errors,
    ) as up:  # fmt: skip
        try:
            assert up.stdout
            while "Ctrl-C" not in (line := up.stdout.readline()):
                assert line, logged.read_text()
            up.send_signal(signal.SIGTERM)
            assert up.wait(300) == 0, logged.read_text()
            assert "Ending" in up.stdout.read()
        finally:
            up.kill()


def test_a_part_that_fails_starts_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "RESTART_SECONDS", 0.01)
    runs: list[int] = []

    def part(stop: threading.Event) -> None:
        runs.append(1)
        if len(runs) < 3:
            raise RuntimeError("on purpose")
        stop.set()

    embedded._kept_alive("part", part, threading.Event())
    assert len(runs) == 3


def test_the_beat_sends_what_is_listed_at_its_pace_and_no_backlog(monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []
    monkeypatch.setattr(embedded.app, "send_task", lambda name, **_: sent.append(name))
    schedule = {
        "fast": {"task": "t.fast", "schedule": 0.1, "options": {"expires": 1}},
        "slow": {"task": "t.slow", "schedule": 30},
    }
    stop = threading.Event()
    thread = threading.Thread(target=embedded.beat, args=(stop, schedule))
    began = time.monotonic()
    thread.start()
    until(lambda: sent.count("t.fast") >= 4)
    stop.set()
    thread.join(30)
    assert sent.count("t.slow") == 1
    assert sent.count("t.fast") <= 1 + (time.monotonic() - began) / 0.1


@pytest.mark.parametrize(
    ("url", "link"), [("", "http://127.0.0.1:9123/x"), ("https://s.example", "https://s.example/x")]
)
def test_links_lead_to_the_port_that_answers_unless_an_address_is_set(
    settings: Any, monkeypatch: pytest.MonkeyPatch, url: str, link: str
) -> None:
    settings.BASE_URL = url or "http://127.0.0.1:8000"
    monkeypatch.setenv("SETPOINT_URL", url)
    embedded.lead_links_to("http://127.0.0.1:9123")
    assert bodies.absolute("/x") == link


def test_every_scheduled_task_exists_and_its_message_expires() -> None:
    embedded.app.loader.import_default_modules()
    for name, entry in embedded.app.conf.beat_schedule.items():
        assert entry["task"] in embedded.app.tasks, name
        assert entry["options"]["expires"] >= 1


def test_up_serves_says_where_and_ends_cleanly(tmp_path: Path) -> None:
    port = free_port()
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SETPOINT_", "DJANGO_"))}
    environment |= {
        "SETPOINT_VAR": str(tmp_path),
        "SETPOINT_ADMIN_EMAIL": "first@example.com",
        "SETPOINT_ADMIN_PASSWORD": "correct horse battery staple",
    }
    command = [sys.executable, "manage.py", "up", "--port", str(port)]
    with subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as up:
        try:
            assert up.stdout
            output = ""
            while "Ctrl-C" not in output or "first@example.com is now admin" not in output:
                line = up.stdout.readline()
                assert line, output
                output += line
            assert f"http://127.0.0.1:{port}" in output
            assert {path.stat().st_mode & 0o077 for path in (tmp_path, *tmp_path.rglob("*"))} == {0}
            assert "no-store" in str(urllib.request.urlopen(f"http://127.0.0.1:{port}/login/", timeout=10).headers)
            up.send_signal(signal.SIGTERM)
            assert up.wait(60) == 0
        finally:
            up.kill()
    assert {path.stat().st_mode & 0o077 for path in (tmp_path, *tmp_path.rglob("*"))} == {0}
