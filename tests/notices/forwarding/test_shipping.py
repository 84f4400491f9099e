"""Forwarding of the audit record: at least once, in order, by one worker at a time, however receivers behave."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from email.utils import format_datetime

import pytest

from audit import sealing
from audit.models import Record
from audit.services import record
from config.doctor import forwarding as doctor
from config.metrics import registry
from notices.forwarding import shipping
from notices.forwarding.destinations import Destination
from notices.models import Forwarding
from tests.audit.chains import record_id, tamper
from tests.notices.forwarding.receivers import HttpReceiver

pytestmark = pytest.mark.django_db
SECRET = "a secret of sixteen"


def noted(n: int, **more) -> None:
    for k in range(n):
        record(**{"by": "ann", "action": "plan.approve", "target": f"plan:{k}"} | more)
    sealing.seal_waiting()


@pytest.fixture
def receiver(settings, clock):
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    server = HttpReceiver()
    yield server
    server.close()


@pytest.fixture
def hook(receiver, settings):
    settings.SETPOINT_AUDIT_FORWARD = (Destination("hook", "webhook", receiver.url, secret=SECRET),)
    return receiver


@pytest.fixture
def otlp(receiver, settings):
    headers = (("Authorization", "Bearer of-the-collector"),)
    settings.SETPOINT_AUDIT_FORWARD = (Destination("otel", "otlp", receiver.url, headers=headers),)
    return receiver


def sweep(clock=None) -> int:
    if clock:
        clock.forward(hours=2)
    return sum(shipping.forward(name) for name in shipping.due())


def hooked(receiver) -> list[list[int]]:
    return [[row["seq"] for row in body["data"]["records"]] for body in receiver.bodies]


def row() -> Forwarding:
    return Forwarding.objects.get()


def test_the_cursor_moves_after_the_acknowledgment_and_a_worker_killed_before_it_sends_again(hook, clock, monkeypatch):
    class Killed(BaseException):
        """SIGKILL, in effect: nothing catches it."""

    def kill(*_args, **_fields):
        raise Killed

    noted(3)
    seen = []
    hook.meanwhile = lambda: seen.append(None)
    with monkeypatch.context() as patched:
        patched.setattr(shipping, "_advance", kill)
        with pytest.raises(Killed):
            sweep()
    assert (row().cursor, len(seen)) == ("0:", 1)
    noted(1)
    assert sweep(clock) == 4
    assert hooked(hook) == [[1, 2, 3], [1, 2, 3, 4]]
    assert row().seq == 4
    assert sweep() == 0


def test_while_one_worker_sends_no_other_does_and_one_whose_claim_ended_does_not_move_the_cursor(
    hook, clock, monkeypatch
):
    noted(2)
    seen, send = [], shipping._send

    def slow(destination, batch, **kw):
        patched.undo()
        seen.append(shipping.forward("hook"))
        clock.forward(seconds=200)  # the first worker hangs here for longer than its claim
        seen.append(shipping.forward("hook"))
        return send(destination, batch, **kw)

    with monkeypatch.context() as patched:
        patched.setattr(shipping, "_send", slow)
        assert sweep() == 0, "its claim was another's by then"
    assert seen == [0, 2]
    assert hooked(hook) == [[1, 2], [1, 2]]
    assert (row().seq, row().claimed_until) == (2, None)


@pytest.mark.parametrize("status", [301, 400, 401, 429, 500, 503])
def test_what_was_not_acknowledged_is_sent_again_after_a_pause_and_nothing_is_passed_over(hook, clock, status):
    noted(2)
    hook.answers = [(status, {"Location": "http://127.0.0.1:1/"}, b"")]
    assert sweep() == 0
    assert (row().seq, row().failures) == (0, 1)
    assert str(status) in row().error
    assert sweep() == 0, "it rests"
    assert len(hook.got) == 1
    assert sweep(clock) == 2
    assert hooked(hook) == [[1, 2], [1, 2]]
    assert (row().failures, row().error, row().failing_since) == (0, "", None)


def test_retry_after_is_waited_for_in_either_form_within_a_bound(hook, clock):
    noted(1)
    at = shipping.now()
    hook.answers = [(429, {"Retry-After": "600"}, b"")]
    sweep()
    assert (row().rests_until - at).total_seconds() == 600
    clock.forward(hours=1)
    at = shipping.now()
    hook.answers = [(503, {"Retry-After": format_datetime(at + shipping.LONGEST_WISH * 9, usegmt=True)}, b"")]
    sweep()
    assert row().rests_until - at == shipping.LONGEST_WISH
    clock.forward(hours=2)
    hook.answers = [(503, {"Retry-After": "soon"}, b"")]
    sweep()
    assert row().rests_until - shipping.now() <= shipping.LONGEST_REST


def test_a_webhook_is_signed_as_standard_webhooks_has_it_and_repeats_its_id(hook, clock):
    noted(2, message="é", after={"api_token": "sp_secret"})
    hook.answers = [(500, {}, b"")]
    sweep()
    sweep(clock)
    (first, body), (second, same) = hook.got
    assert (first["webhook-id"], body) == (second["webhook-id"], same)
    signed = f"{second['webhook-id']}.{second['webhook-timestamp']}.".encode() + body
    mac = base64.b64encode(hmac.new(SECRET.encode(), signed, hashlib.sha256).digest()).decode()
    assert second["webhook-signature"] == f"v1,{mac}"
    rows = json.loads(body)["data"]["records"]
    assert {row["id"] for row in rows} == {str(pk) for pk in Record.objects.values_list("pk", flat=True)}
    assert b"sp_secret" not in body


def test_a_batch_that_is_too_large_is_halved_and_a_single_record_shortened(hook):
    noted(4, message="m" * 3000, after={"x": "y" * 5000})
    hook.answers = [(413, {}, b"")] * 3 + [(200, {}, b"")]
    assert sweep() == 4
    assert hooked(hook) == [[1, 2, 3, 4], [1, 2], [1], [1], [2, 3, 4]]
    short = hook.bodies[3]["data"]["records"][0]
    assert (short["is_shortened"], short["after"], len(short["message"])) == (True, None, 1000)


def test_a_destination_that_is_away_for_days_keeps_neither_another_one_nor_its_own_place(hook, settings, clock):
    settings.SETPOINT_AUDIT_FORWARD += (Destination("away", "webhook", "http://127.0.0.1:1/", secret=SECRET),)
    for _day in range(3):
        noted(2)
        sweep(clock)
        clock.forward(hours=24)
    lag = {standing.destination.name: standing.lag for standing in shipping.standings()}
    assert lag == {"hook": 0, "away": 7}, "the seventh record reports the failure"
    states = {finding.state for finding in doctor.destinations()}
    assert states == {"ok", "problem"}
    assert registry.get_sample_value("setpoint_audit_forward_lag", {"destination": "away"}) == 7
    assert registry.get_sample_value("setpoint_audit_forward_failing_seconds", {"destination": "hook"}) == 0
    settings.SETPOINT_AUDIT_FORWARD = (Destination("away", "webhook", hook.url, secret=SECRET),)
    hook.got.clear()
    assert sweep(clock) == 7
    assert hooked(hook) == [[1, 2, 3, 4, 5, 6, 7]]


def test_a_destination_begins_with_the_first_record_or_with_the_next_one(hook, settings):
    noted(2)
    settings.SETPOINT_AUDIT_FORWARD += (Destination("new", "webhook", hook.url, begin="now", secret=SECRET),)
    assert sweep() == 2
    noted(1)
    assert sweep() == 2
    assert sorted(hooked(hook)) == [[1, 2], [3], [3]]


def test_a_record_that_was_changed_or_deleted_after_it_was_sealed_shows_in_what_is_sent(hook):
    noted(3)
    tamper("UPDATE audit_record SET message = 'other' WHERE id = %s", record_id(2))
    tamper("DELETE FROM audit_record WHERE id = %s", record_id(1))
    sweep()
    assert [(row["seq"], row["integrity"]) for row in hook.bodies[0]["data"]["records"]] == [
        (2, "changed"),
        (3, "intact"),
    ]


def test_a_cursor_of_another_chain_sends_everything_again_rather_than_too_little(hook):
    noted(3)
    sweep()
    tamper("UPDATE audit_seal SET seal = %s WHERE seq = 3", "f" * 64)
    tamper("UPDATE audit_chain SET seal = %s", "f" * 64)
    noted(1)
    assert sweep() == 4
    assert hooked(hook)[-1] == [1, 2, 3, 4]
    assert row().restarts == 1


# ── OTLP ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
def is_any_value(value) -> bool:
    (kind,) = value
    return {"stringValue": str, "intValue": str}[kind] is type(value[kind])


def test_otlp_is_an_export_logs_service_request_in_the_json_form_of_its_specification(otlp, clock):
    """Names and types as opentelemetry-proto v1 has them: logs_service.proto, logs.proto, common.proto."""
    noted(2, message="é")
    assert sweep() == 2
    headers, _ = otlp.got[0]
    assert headers["content-type"] == "application/json"
    assert headers["authorization"] == "Bearer of-the-collector"
    (request,) = otlp.bodies
    assert set(request) == {"resourceLogs"}
    (resource_logs,) = request["resourceLogs"]
    assert set(resource_logs) == {"resource", "scopeLogs"}
    attributes = {row["key"]: row["value"] for row in resource_logs["resource"]["attributes"]}
    assert attributes["service.name"] == {"stringValue": "setpoint"}
    (scope_logs,) = resource_logs["scopeLogs"]
    assert set(scope_logs) == {"scope", "logRecords"}
    assert set(scope_logs["scope"]) == {"name", "version"}
    written = list(Record.objects.sealed())
    for sent, stored in zip(scope_logs["logRecords"], written, strict=True):
        assert set(sent) == {
            "timeUnixNano", "observedTimeUnixNano", "severityNumber", "severityText", "body", "attributes",
        }  # fmt: skip
        assert int(sent["timeUnixNano"]) == round(stored.at.timestamp() * 1e6) * 1000
        assert sent["timeUnixNano"].isdigit()
        assert sent["observedTimeUnixNano"].isdigit()
        assert 1 <= sent["severityNumber"] <= 24
        assert is_any_value(sent["body"])
        assert all(set(row) == {"key", "value"} and is_any_value(row["value"]) for row in sent["attributes"])
        named = {row["key"]: row["value"] for row in sent["attributes"]}
        assert named["setpoint.audit.seq"] == {"intValue": str(stored.seq)}
        assert named["setpoint.audit.action"] == {"stringValue": stored.action}


@pytest.mark.parametrize(
    ("answer", "rejected"),
    [
        (b"", 0),
        (b"{}", 0),
        (b'{"partialSuccess": {}}', 0),
        (b'{"partialSuccess": {"errorMessage": "only a warning"}}', 0),
        (b'{"partialSuccess": {"rejectedLogRecords": "2", "errorMessage": "too old"}}', 2),
        (b'{"partialSuccess": {"rejectedLogRecords": 99}}', 3),
        (b'{"partialSuccess": {"rejectedLogRecords": "-5"}}', 0),
        (b"\xff[[[", 0),
    ],
)
def test_partial_success_is_not_sent_again_but_counted_and_shown(otlp, clock, answer, rejected):
    noted(3)
    otlp.answers = [(200, {}, answer)]
    assert sweep() == 3
    assert sweep(clock) == 0
    assert row().rejected == rejected
    assert ("warning" in {finding.state for finding in doctor.destinations()}) is bool(rejected)
    if answer.endswith(b'"too old"}}'):
        assert "1 to 3: too old" in row().rejection
