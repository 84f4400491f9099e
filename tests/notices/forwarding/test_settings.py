"""SETPOINT_AUDIT_FORWARD: read whole, or the process ends and names item and field, never a secret."""

from __future__ import annotations

import json

import pytest

from config import forwarding
from config.env import BadEnvironment

HOOK = {"name": "hook", "kind": "webhook", "url": "https://hook.example/x", "secret": "a secret of sixteen"}
OTLP = {"name": "otel", "kind": "otlp", "url": "https://collector.example:4318/v1/logs"}
SYSLOG = {"name": "siem", "kind": "syslog", "url": "tls://siem.example"}


def test_a_list_of_destinations_is_read_and_shows_no_secret():
    headers = {"Authorization": "Bearer hidden-token"}
    read = forwarding.destinations(json.dumps([HOOK, OTLP | {"headers": headers}, SYSLOG | {"enterprise": 4711}]))
    assert [(row.name, row.kind) for row in read] == [("hook", "webhook"), ("otel", "otlp"), ("siem", "syslog")]
    assert read[2].port == 6514
    assert "a secret" not in repr(read)
    assert "hidden-token" not in repr(read)
    assert forwarding.destinations("  ") == ()


@pytest.mark.parametrize(
    ("rows", "where"),
    [
        ([HOOK, HOOK], "hook twice"),
        ([HOOK | {"secret": "short"}], r"\[0\].secret"),
        ([HOOK | {"headers": {}}], r"\[0\].headers is unknown"),
        ([HOOK | {"url": "http://hook.example"}], r"\[0\].url"),
        ([HOOK | {"url": "https://me:pw@hook.example"}], r"\[0\].url"),
        ([HOOK, OTLP | {"url": "https://collector.example"}], r"\[1\].url .*v1/logs"),
        ([OTLP | {"headers": {"X": "a\r\nb"}}], r"\[0\].headers.X"),
        ([OTLP | {"headers": {"Content-Type": "x"}}], r"\[0\].headers"),
        ([SYSLOG | {"url": "udp://siem.example"}], r"\[0\].url must be tls"),
        ([SYSLOG | {"url": "tls://siem.example:99999"}], r"\[0\].url"),
        ([SYSLOG | {"enterprise": 0}], r"\[0\].enterprise"),
        ([SYSLOG | {"certificate": "x"}], r"\[0\].certificate and key"),
        ([SYSLOG | {"begin": "yesterday"}], r"\[0\].begin"),
        ([SYSLOG | {"name": "A B"}], r"\[0\].name"),
        ([{"kind": "kafka"}], r"\[0\].kind"),
        (["x"], r"\[0\] must have"),
        ({"name": "x"}, "must be a list"),
    ],
)
def test_a_wrong_field_is_named(rows, where):
    with pytest.raises(BadEnvironment, match=where) as error:
        forwarding.destinations(json.dumps(rows))
    assert "a secret of sixteen" not in str(error.value)


def test_text_that_is_no_yaml_is_refused_without_being_shown():
    with pytest.raises(BadEnvironment, match="cannot be read") as error:
        forwarding.destinations("[{secret: hidden-token")
    assert "hidden-token" not in str(error.value)
