"""Channels as an administrator sets them up: what is refused, which secrets are never shown, and their pages."""

from __future__ import annotations

import pytest

from audit.models import Record
from notices.channels import routing
from notices.models import Channel, Delivery
from tests.factories import TokenClient
from tests.notices.channels.receiving import SECRET, hook

pytestmark = pytest.mark.django_db


@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({"url": "ftp://x/y"}, "url"),
        ({"url": "https://ann:pw@chat.example/"}, "url"),
        ({"url": "https://chat.example/#x"}, "url"),
        ({"url": ""}, "url"),
        ({"secret": "short"}, "secret"),
        ({"what": []}, "what"),
        ({"what": ["nope"]}, "what"),
        ({"namespaces": ["Nope!"]}, "namespaces"),
        ({"digest_hour": 24}, "digest_hour"),
        ({"ca": "not PEM"}, "ca"),
        ({"kind": "mail", "addresses": []}, "addresses"),
        ({"kind": "mail", "addresses": ["nope"]}, "addresses"),
    ],
)
def test_a_channel_that_cannot_be_is_refused_and_named(admin, sent, field):
    good = {"name": "x", "kind": "webhook", "url": "https://chat.example/x", "secret": SECRET, "what": ["alerts"]}
    answer = TokenClient(admin).post("/api/v1/notice-channels", good | sent)
    assert answer.status_code in (400, 422)
    assert {error["field"].split("[")[0].split(".")[0] for error in answer.json()["errors"]} == {field}
    assert not Channel.objects.exists()


def test_secrets_are_never_read_back_nor_written_into_the_record(admin):
    api = TokenClient(admin)
    sent = {"name": "x", "kind": "webhook", "url": "https://chat.example/T0/B0/xyzzy", "secret": SECRET}
    made = api.post("/api/v1/notice-channels", sent | {"what": ["alerts"]})
    assert made.status_code == 201
    assert made.json()["has_secret"] is True
    path = made["Location"]
    assert SECRET not in made.content.decode() + api.get(path).content.decode()
    row = Channel.objects.get()
    assert SECRET.encode() not in bytes(row.secret)
    assert row.open_secret() == SECRET
    changed = api.patch(path, {"secret": "another secret, longer"}, HTTP_IF_MATCH='"1"')
    assert changed.status_code == 200
    records = Record.objects.filter(action__startswith="notice-channel.")
    recorded = " ".join(f"{record.before} {record.after}" for record in records)
    assert len(records) == 2
    assert "xyzzy" not in recorded
    assert SECRET not in recorded
    assert "chat.example" in recorded


def test_the_stored_secret_is_not_sent_to_another_host(admin):
    row = hook(admin)
    api = TokenClient(admin)
    answer = api.patch(f"/api/v1/notice-channels/{row.pk}", {"url": "https://evil.example/"}, HTTP_IF_MATCH='"1"')
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "secret")


def test_a_test_tells_how_it_went_and_stores_nothing(receiver, admin):
    row, api = hook(admin, receiver.url), TokenClient(admin)
    receiver.answers = [200, 404]
    path = f"/api/v1/notice-channels/{row.pk}/actions/test"
    assert api.post(path).json() == {"is_sent": True, "text": ""}
    assert api.post(path).json() == {"is_sent": False, "text": "127.0.0.1 answered 404."}
    assert receiver.bodies[0]["event"] == "test"
    assert not Delivery.objects.exists()


def test_the_pages_of_channels_say_what_works_and_keep_what_was_typed(receiver, admin, client):
    client.force_login(admin)
    assert "No channels" in client.get("/alerts/channels/").content.decode()
    form = {
        "name": "chat", "kind": "webhook", "url": receiver.url, "secret": SECRET, "what": ["alerts", "digest"],
        "least_severity": "warning", "digest_hour": "7", "is_enabled": "on", "namespaces": "", "addresses": "",
    }  # fmt: skip
    wrong = client.post("/alerts/channels/new/", form | {"namespaces": "NOPE"})
    assert wrong.status_code == 422
    assert "&#x27;NOPE&#x27; is not the name of a namespace." in wrong.content.decode()
    assert "Arrived" in client.post("/alerts/channels/new/", form | {"intent": "test"}).content.decode()
    client.post("/alerts/channels/new/", form | {"intent": "save"})
    row = Channel.objects.get()
    page = f"/alerts/channels/{row.pk}/"
    assert SECRET not in client.get(page).content.decode()
    routing.queue(row, "alerts", "A title", {})
    assert client.post(page, form | {"secret": "", "version": "1", "name": "new name"}).status_code == 302
    row.refresh_from_db()
    assert (row.name, row.open_secret(), row.version) == ("new name", SECRET, 2)
    stale = client.post(page, form | {"secret": "", "version": "1"})
    assert stale.status_code == 412
    assert 'name="version" value="2"' in stale.content.decode()
    log = client.get("/alerts/deliveries/?status=waiting")
    assert "A title" in log.content.decode()
    client.post(f"/alerts/channels/{row.pk}/delete/", {"version": "2"})
    assert not Delivery.objects.exists()
