"""A receiver of the audit record that fails for long: recorded once, notified, shown to those who read everything."""

from __future__ import annotations

import pytest

from audit import sealing
from audit.models import Record
from audit.services import record
from common.hooks import audit_panels
from notices.alerts import events
from notices.forwarding import shipping
from notices.forwarding.destinations import Destination
from notices.models import Channel, Delivery, Forwarding
from tests.clusters.factories import ClusterFactory
from tests.factories import UserFactory
from tests.jobs.pages import browser
from tests.notices.forwarding.receivers import HttpReceiver

pytestmark = pytest.mark.django_db


@pytest.fixture
def receiver(settings, clock):
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    server = HttpReceiver()
    settings.SETPOINT_AUDIT_FORWARD = (Destination("siem", "webhook", server.url, secret="a secret of sixteen"),)
    yield server
    server.close()


def sweep() -> None:
    sealing.seal_waiting()
    for name in shipping.due():
        shipping.forward(name)


def reports() -> list[str]:
    actions = (shipping.FAILING, shipping.RESUMED)
    return list(Record.objects.filter(action__in=actions).order_by("at", "pk").values_list("action", flat=True))


def test_a_long_failure_is_recorded_once_and_so_is_its_end_and_a_short_one_never(receiver, clock):
    Channel.objects.create(name="ops", what=["approvals"], kind=Channel.Kind.MAIL, addresses=["ops@example.com"])
    events.read()
    record(by="ann", action="plan.approve", target="plan:1")
    receiver.answers = [(503, {}, b"")]
    sweep()
    clock.forward(minutes=10)
    receiver.answers = []
    sweep()
    assert (receiver.bodies[-1]["data"]["records"][-1]["seq"], reports()) == (1, []), "it restarted"

    record(by="ann", action="plan.approve", target="plan:2")
    receiver.answers = [(503, {}, b"")] * 9
    for _look in range(9):
        sweep()
        clock.forward(minutes=6)
    assert reports() == [shipping.FAILING]
    failing = Record.objects.get(action=shipping.FAILING)
    assert (failing.target_name, "503" in failing.message) == ("siem", True)

    receiver.answers = []
    sweep()
    clock.forward(minutes=6)
    sweep()
    assert reports() == [shipping.FAILING, shipping.RESUMED]
    assert Forwarding.objects.get().reported_at is None
    events.read()
    assert sorted(row.body["action"] for row in Delivery.objects.all()) == reports()


def test_a_receiver_that_asks_for_hours_is_tried_in_time_to_report_it(receiver, clock):
    record(by="ann", action="plan.approve", target="plan:1")
    receiver.answers = [(503, {"Retry-After": "36000"}, b"")] * 9
    for _look in range(20):
        sweep()
        clock.forward(minutes=1)
    assert reports() == [shipping.FAILING]
    assert len(receiver.got) <= 3, "what it asks for is kept to otherwise"


def test_a_worker_killed_while_it_records_the_end_records_it_the_next_time(receiver, clock, monkeypatch):
    class Killed(BaseException):
        """End of a process, which no handler catches."""

    def kill(*_args, **_fields):
        raise Killed

    record(by="ann", action="plan.approve", target="plan:1")
    receiver.answers = [(503, {}, b"")] * 5
    for _look in range(5):
        sweep()
        clock.forward(minutes=6)
    with monkeypatch.context() as patched:
        patched.setattr(shipping, "_report", kill)
        with pytest.raises(Killed):
            sweep()
    clock.forward(minutes=6)
    sweep()
    assert reports() == [shipping.FAILING, shipping.RESUMED]


def test_the_audit_page_shows_each_receiver_to_those_who_read_everything_alone(receiver, settings, clock):
    settings.SETPOINT_AUDIT_FORWARD += (Destination("away", "webhook", "http://127.0.0.1:1/", secret="s" * 16),)
    cluster = ClusterFactory()
    record(by="ann", action="plan.approve", target="plan:1")
    sweep()
    page = browser(UserFactory(roles=["auditor"])).get("/audit/").content.decode()
    lag = {standing.destination.name: standing.lag for standing in shipping.standings()}
    assert lag["away"] > lag["siem"]
    for name, waiting in lag.items():
        assert f'data-receiver="{name}" data-lag="{waiting}"' in page
    assert Forwarding.objects.get(pk="away").error in page
    assert "s" * 16 not in page
    scoped = browser(UserFactory(roles=[f"approver@cluster:{cluster.pk}"])).get("/audit/").content.decode()
    assert "data-receiver" not in scoped
    settings.SETPOINT_AUDIT_FORWARD = ()
    assert audit_panels() == []
