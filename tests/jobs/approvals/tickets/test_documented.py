"""docs/change-records.md: its commands are run as they are written, and its payloads sent."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from jobs.approvals.tickets import rulebook
from jobs.models import ChangeRecord, TicketMessage
from tests.jobs.approvals.tickets.ticket_system import SECRET

PAGE = (Path(__file__).resolve().parents[4] / "docs/change-records.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.django_db(transaction=True)
def test_the_commands_hold_and_release(tickets, rule, live_server):
    (script,) = blocks("sh")
    environment = {**os.environ, "SETPOINT": live_server.url, "CONNECTION": str(tickets.row.pk), "SECRET": SECRET}
    done = subprocess.run(
        ["bash", "-eu"], input=script, env=environment, capture_output=True, text=True, timeout=60, check=False
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    row = ChangeRecord.objects.get(pk="CHG0030192")
    assert (row.state, row.note, row.source) == ("release", "Scheduled", "ServiceNow")
    assert TicketMessage.objects.count() == 2


@pytest.mark.django_db
def test_the_payloads_of_servicenow_and_jira_are_accepted(tickets, rule, admin):
    rulebook.create(by=admin, environment="production", pattern=r"OPS-\d+|SEC-\d+")
    payloads = [text for text in blocks("json") if "{{" not in text]
    assert [tickets.post(text.encode()).status_code for text in payloads] == [204, 204]
    assert dict(ChangeRecord.objects.values_list("reference", "state")) == {
        "CHG0030192": "release",
        "OPS-417": "release",
    }
