"""Audit records over syslog, read by a strict reader of RFC 5424 at the end of a TLS connection."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from audit import sealing
from audit.models import Record, Seal
from audit.services import record
from clusters.fleet import FleetError
from notices.forwarding import shipping, syslog
from notices.forwarding.destinations import Destination
from notices.forwarding.entries import entry_of
from notices.models import Forwarding
from tests.notices.forwarding import rfc5424
from tests.notices.forwarding.receivers import HANG, NO_END, RESET, SyslogReceiver

AT = datetime(2026, 11, 27, 1, 2, 3, 40, tzinfo=UTC)
WORDS = st.text(max_size=200) | st.text('"\\]\r\n\0=[ \u2028\x85é𝄞', max_size=200)


@settings(max_examples=40, deadline=None)
@given(WORDS, WORDS, st.text(max_size=60), st.one_of(WORDS, st.text(min_size=3000, max_size=4000)), WORDS)
def test_any_content_is_a_message_of_rfc_5424_whose_parts_are_what_was_recorded(actor, target, action, message, value):
    row = Record(id=UUID(int=7), at=AT, actor=actor, action=action, target=target, message=message, after={"of": value})
    Seal(seq=9, record=row, seal="ab")
    entry = entry_of(row)
    frame = syslog.frame(entry, 32473)
    (framed,) = rfc5424.messages(frame)
    assert len(framed) <= syslog.MOST_BYTES
    read = rfc5424.read(framed)
    assert (read.priority >> 3, read.at, read.app) == (13, AT, "setpoint")
    (parameters,) = read.data.values()
    assert parameters["id"] == str(UUID(int=7))
    assert len(parameters.get("actor", "")) == len(actor)
    assert not any(ord(character) < 32 for character in framed.decode())
    sent = json.loads(read.text)
    assert sent["actor"] == actor.encode("utf-8", "replace").decode()
    if not sent["is_shortened"]:
        assert sent["message"] == message.encode("utf-8", "replace").decode()
        assert sent["after"] == {"of": value.encode("utf-8", "replace").decode()}
    else:
        assert parameters["shortened"] == "true"


@pytest.fixture
def receiver(settings):
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    server = SyslogReceiver()
    settings.SETPOINT_AUDIT_FORWARD = (Destination("siem", "syslog", server.url, ca=server.ca),)
    yield server
    server.close()


def noted(n: int) -> None:
    for k in range(n):
        record(by="ann", action="plan.approve", target=f"plan:{k}", after={"password": "hunter2", "n": k})
    sealing.seal_waiting()


def numbers(receiver: SyslogReceiver) -> list[list[int]]:
    return [[json.loads(rfc5424.read(m).text)["seq"] for m in rfc5424.messages(s)] for s in receiver.streams]


@pytest.mark.django_db
def test_records_arrive_in_order_without_secrets_and_after_a_cut_connection_again(receiver, clock, monkeypatch):
    noted(5)
    assert shipping.due() == ["siem"]
    receiver.moods = [RESET, HANG]
    monkeypatch.setattr(shipping, "SECONDS", 0.5)
    for _ in receiver.moods[:]:
        assert shipping.forward("siem") == 0
        row = Forwarding.objects.get()
        assert (row.cursor, bool(row.error), row.claimed_until) == ("0:", True, None)
        clock.forward(minutes=6)
    receiver.over.set()
    monkeypatch.setattr(shipping, "SECONDS", 15.0)
    assert shipping.forward("siem") == 5
    assert numbers(receiver)[-1] == [1, 2, 3, 4, 5]
    assert b"hunter2" not in b"".join(receiver.streams)
    receiver.moods = [NO_END]  # as receivers do that end without close_notify
    noted(2)
    assert shipping.forward("siem") == 2
    assert numbers(receiver)[-1] == [6, 7]
    assert Forwarding.objects.get().failures == 0


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("tls://169.254.169.254", "metadata"),
        ("tls://127.0.0.2:1", "SETPOINT_ALLOW_NETWORKS"),
        (None, "certificate"),
    ],
)
def test_a_receiver_that_policy_or_certificate_forbids_is_sent_nothing(receiver, settings, url, why):
    if url:
        settings.SETPOINT_ALLOW_NETWORKS = []
    settings.SETPOINT_AUDIT_FORWARD = (Destination("siem", "syslog", url or receiver.url),)
    noted(1)
    shipping.due()
    assert shipping.forward("siem") == 0
    assert why in Forwarding.objects.get().error
    assert receiver.streams == []


def test_what_is_sent_to_a_port_that_nobody_listens_at_is_not_sent(settings):
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    with pytest.raises(FleetError):
        syslog.send(Destination("siem", "syslog", "tls://127.0.0.1:1"), [], 1.0)
