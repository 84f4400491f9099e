"""Alerts as incidents of PagerDuty, by its Events API v2: opened when an alert opens, resolved when it closes.

An event carries the alert's id as its deduplication key, so an event that is sent twice changes nothing.
https://developer.pagerduty.com/docs/events-api-v2/trigger-events/
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from notices.channels import posting
from notices.models import Alert, Channel, Delivery

URL = "https://events.pagerduty.com/v2/enqueue"
"""Accounts in the service region EU have another host, which their administrators give."""
KEY_LENGTH = 32
"""Letters and digits of an integration key."""
AT_ONCE = 10
"""Alerts that open, and that close, in one delivery: so many posts end in its time."""
LONGEST_SUMMARY = 1024
Event = dict[str, Any]


def send(channel: Channel, delivery: Delivery) -> None:
    """Waits on the network: hold no transaction. Raises Undelivered."""
    key = posting.secret_of(channel)
    events = list(_test(channel, delivery) if delivery.event != Channel.What.ALERTS else _alerts(delivery))
    posting.post(channel, (json.dumps({"routing_key": key, **event}).encode() for event in events))


def _alerts(delivery: Delivery) -> Iterator[Event]:
    """Yield what is still so: an alert that closed while this waited opens no incident that would stay open."""
    opened = delivery.body["opened"]
    live = Alert.objects.filter(pk__in=[alert["id"] for alert in opened], status__in=Alert.LIVE)
    is_live = {str(pk) for pk in live.values_list("pk", flat=True)}
    for alert in opened:
        if alert["id"] in is_live:
            yield _opened(alert, delivery.body["cluster"])
    for alert in delivery.body["closed"]:
        yield {"event_action": "resolve", "dedup_key": alert["id"]}


def _opened(alert: Mapping[str, Any], cluster: Mapping[str, Any]) -> Event:
    summary = f"{cluster['name']}: {alert['subject']['name']}: {alert['sentence']}"
    details = {"what_to_do": alert["what_to_do"], "namespace": alert["namespace"], "figures": alert["figures"]}
    if alert.get("members"):
        details["members"] = [member["name"] for member in alert["members"]]
        details["member_count"] = alert["member_count"]
    return {
        "event_action": "trigger",
        "dedup_key": alert["id"],
        "payload": {
            "summary": summary[:LONGEST_SUMMARY],
            "source": f"{cluster['name']}/{alert['subject']['name']}",
            "severity": alert["severity"],
            "timestamp": alert["began_at"],
            "component": alert["subject"]["kind"],
            "group": cluster["name"],
            "class": alert["rule"],
            "custom_details": details,
        },
        "client": "Setpoint",
        "client_url": alert["link"],
        "links": [{"href": alert["link"], "text": "The alert in Setpoint"}],
    }


def _test(channel: Channel, delivery: Delivery) -> Iterator[Event]:
    """Yield an incident of the least severity, and its end at once."""
    key = f"setpoint-test-{channel.pk}"
    payload = {"summary": delivery.title[:LONGEST_SUMMARY], "source": "Setpoint", "severity": "info"}
    yield {"event_action": "trigger", "dedup_key": key, "payload": payload, "client": "Setpoint"}
    yield {"event_action": "resolve", "dedup_key": key}
