"""Channels to Slack, Microsoft Teams and PagerDuty: what each is sent, within its limits, and what no name can do."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from common.clock import now
from notices.channels import bodies, chats, deliveries, incidents, routing, services
from notices.models import Alert, Channel, Delivery
from tests.factories import TokenClient
from tests.notices.channels.receiving import alert, hook

pytestmark = pytest.mark.django_db
KEY = "0123456789abcdefABCDEF0123456789"
HOSTILE = "<!channel> & <https://evil.example|here> [x](https://evil.example) *b* \U0001f600"


def chat(admin, kind, url, **fields):
    return hook(admin, url, kind=kind, name=kind, secret=None, **fields)


def pager(admin, url, **fields):
    return hook(admin, url, kind="pagerduty", name="pager", secret=KEY, **fields)


def open_and_close(cluster, rows):
    routing.tell_alerts(cluster.pk, rows, [])
    Alert.objects.filter(pk__in=[row.pk for row in rows]).update(status="closed", closed_at=now())
    routing.tell_alerts(cluster.pk, [], rows)


def send_all(channel):
    while deliveries.deliver(channel.pk):
        pass


def texts(message):
    """Yield every string of a message with the key that it is under."""
    for key, value in message.items() if isinstance(message, dict) else ():
        if isinstance(value, str):
            yield key, value
        for entry in value if isinstance(value, list) else [value]:
            yield from texts(entry)


# ── Chats ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_slack_gets_each_alert_with_its_link_and_no_name_becomes_markup(receiver, admin, cluster):
    channel = chat(admin, "slack", receiver.url)
    row = alert(cluster, sentence=HOSTILE, mend="Mend it.")
    routing.tell_alerts(cluster.pk, [row], [])
    assert deliveries.deliver(channel.pk) == 1
    (message,) = receiver.bodies
    header, section, last = message["blocks"]
    assert header["text"]["type"] == "plain_text"
    assert section["text"]["text"].startswith(f"<{bodies.absolute('/alerts/')}{row.pk}/|OPENED · warning · n1>")
    assert "What to do: Mend it." in section["text"]["text"]
    assert last["text"]["text"].endswith("|Open in Setpoint>")
    marked = [message["text"], *(block["text"]["text"] for block in (section, last))]
    assert not any("<!" in text or "<https://evil" in text for text in marked)
    assert all(block["text"]["verbatim"] for block in (section, last))


def test_teams_gets_a_card_whose_names_are_never_markdown(receiver, admin, cluster):
    channel = chat(admin, "teams", receiver.url)
    routing.tell_alerts(cluster.pk, [alert(cluster, sentence=HOSTILE)], [])
    receiver.answers = [202]
    assert deliveries.deliver(channel.pk) == 1
    (attachment,) = receiver.bodies[0]["attachments"]
    card = attachment["content"]
    assert (attachment["contentType"], card["type"]) == ("application/vnd.microsoft.card.adaptive", "AdaptiveCard")
    assert {block["type"] for block in card["body"]} == {"RichTextBlock", "Container"}
    assert HOSTILE in [text for _, text in texts(card)]
    assert card["actions"][0]["url"] == Delivery.objects.get().body["link"]


@given(
    sentences=st.lists(st.text(max_size=500), max_size=8),
    title=st.text(max_size=200),
    link=st.text("abc/&<>|", max_size=500),
    count=st.integers(0, 30),
)
@example(sentences=["<" * 500], title="<" * 200, link="&" * 600, count=1)
def test_messages_keep_to_the_limits_of_their_service(sentences, title, link, count):
    each = [
        {
            "sentence": sentence,
            "severity": "critical",
            "subject": {"name": title or "n"},
            "link": link,
            "what_to_do": sentence,
            "members": [{"name": sentence, "since": "2026-11-27T08:00"}] * 20,
            "member_count": 99,
        }
        for sentence in sentences
    ] * count
    counts = {"opened": len(each), "closed": len(each)}
    body = {"opened": each[:100], "closed": each[:100], "counts": counts, "link": link}
    delivery = Delivery(event="alerts", title=title, body=body)
    message = chats.slack(delivery)
    assert len(message["blocks"]) <= 50
    assert len(message["blocks"][0]["text"]["text"]) <= 150
    assert all(1 <= len(block["text"]["text"]) <= 3000 for block in message["blocks"][1:])
    assert len(json.dumps(chats.teams(delivery), ensure_ascii=False).encode("utf-8", "replace")) <= 28_000


# ── PagerDuty ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_an_alert_is_an_incident_until_it_closes_even_if_it_was_silenced_since(receiver, admin, cluster):
    channel = pager(admin, receiver.url)
    row = alert(cluster, severity="critical", mend="Mend it.")
    routing.tell_alerts(cluster.pk, [row], [])
    send_all(channel)
    row.silenced_until = now() + timedelta(days=1)
    routing.tell_alerts(cluster.pk, [], [row])
    send_all(channel)
    begun, ended = receiver.bodies
    assert {body["routing_key"] for body in receiver.bodies} == {KEY}
    assert (begun["event_action"], begun["dedup_key"]) == ("trigger", str(row.pk))
    assert (begun["payload"]["severity"], begun["payload"]["source"]) == ("critical", "atlas/n1")
    assert ended == {"routing_key": KEY, "event_action": "resolve", "dedup_key": str(row.pk)}


def test_none_of_many_is_left_out_and_one_refusal_sends_the_rest_of_them_again(receiver, admin, cluster):
    channel = pager(admin, receiver.url)
    rows = [alert(cluster, f"n{number}") for number in range(2 * incidents.AT_ONCE + 3)]
    routing.tell_alerts(cluster.pk, rows, [])
    receiver.answers = [202, 429]
    assert deliveries.deliver(channel.pk) == 0
    Delivery.objects.update(due_at=now())
    Channel.objects.update(rests_until=None)
    send_all(channel)
    assert {body["dedup_key"] for body in receiver.bodies} == {str(row.pk) for row in rows}
    assert not Delivery.objects.exclude(status="sent").exists()


def test_what_closed_while_it_waited_opens_nothing(receiver, admin, cluster):
    channel = pager(admin, receiver.url)
    open_and_close(cluster, [alert(cluster)])
    send_all(channel)
    assert [body["event_action"] for body in receiver.bodies] == ["resolve"]


def test_a_test_of_a_pager_ends_the_incident_that_it_opens(receiver, admin):
    channel = pager(admin, receiver.url)
    receiver.answers = [202, 202]
    assert services.probe(channel, by=admin) == ""
    begun, ended = receiver.bodies
    assert (begun["event_action"], ended["event_action"]) == ("trigger", "resolve")
    assert begun["dedup_key"] == ended["dedup_key"]
    assert begun["payload"]["severity"] == "info"


# ── Setting one up ────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("sent", "field"),
    [
        ({"kind": "slack", "url": ""}, "url"),
        ({"kind": "teams", "url": "http://chat.example/x"}, "url"),
        ({"kind": "pagerduty", "secret": "a secret of sixteen"}, "secret"),
        ({"kind": "pagerduty"}, "secret"),
        ({"kind": "pagerduty", "secret": KEY, "what": ["alerts", "rollouts"]}, "what"),
    ],
)
def test_what_such_a_channel_cannot_be_is_refused_and_named(admin, sent, field):
    good = {"name": "x", "url": "https://chat.example/x", "what": ["alerts"]}
    answer = TokenClient(admin).post("/api/v1/notice-channels", good | sent)
    assert answer.status_code in (400, 422)
    assert {error["field"].split("[")[0].split(".")[0] for error in answer.json()["errors"]} == {field}


def test_a_pager_has_its_own_address_and_a_chat_keeps_no_secret(admin):
    assert pager(admin, "").url == incidents.URL
    row = hook(admin, kind="slack", secret="a secret that Slack has no use for")
    assert not row.has_secret


def test_a_signing_secret_is_not_sent_to_a_pager(admin):
    """PagerDuty's key is in each body, a webhook's secret never leaves."""
    row = hook(admin, secret=KEY)
    answer = TokenClient(admin).patch(f"/api/v1/notice-channels/{row.pk}", {"kind": "pagerduty"}, HTTP_IF_MATCH='"1"')
    assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "secret")
