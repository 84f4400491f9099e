"""Rows with an address and a secret: one set of laws for chart repositories, channels and telemetry sources."""

from __future__ import annotations

import pytest
from django.apps import apps

from clusters.connection import remotes
from clusters.connection.encryption import CannotOpen
from clusters.connection.remotes import Remote
from common.errors import Invalid, Stale
from components.models import Repository
from gpus.models import TelemetrySource
from jobs.models import TicketConnection
from notices.models import Channel
from tests.clusters.factories import ClusterFactory

pytestmark = pytest.mark.django_db
URL = "https://one.example/path"
REMOTES = {
    Repository: lambda name: Repository(name=name, url=f"{URL}/{name}"),
    Channel: lambda name: Channel(name=name, url=f"{URL}/{name}"),
    TelemetrySource: lambda name: TelemetrySource(cluster=ClusterFactory(), url=f"{URL}/{name}"),
}


@pytest.fixture(params=REMOTES, ids=lambda model: model.__name__)
def make(request):
    def made(name: str) -> Remote:
        row = REMOTES[request.param](name)
        row.set_secret("of its own")
        row.save(force_insert=True)
        return row

    return made


def test_every_row_with_a_secret_and_an_address_is_one_of_these():
    # Ticket systems have no address: they send to Setpoint.
    assert {model for model in apps.get_models() if issubclass(model, Remote)} == {*REMOTES, TicketConnection}
    others = [
        model
        for model in apps.get_models()
        if {"url"} & {field.name for field in model._meta.get_fields()}
        and any(field.name.endswith("_key") for field in model._meta.get_fields())
        and not issubclass(model, Remote)
    ]
    assert not others


def test_a_secret_opens_in_its_own_row_alone_and_in_no_text_of_it(make):
    mine, theirs = make("a"), make("b")
    assert mine.open_secret() == "of its own"
    assert (
        "of its own"
        not in f"{mine!r}{mine.__dict__}{remotes.recorded_fields(mine, ['url'])}{remotes.new_secret(mine, 'x')}"
    )
    for column in mine.secret_columns():
        setattr(theirs, column, getattr(mine, column))
    with pytest.raises(CannotOpen):
        theirs.open_secret()


def test_the_secret_of_a_ticket_system_opens_in_its_own_row_alone():
    mine, theirs = TicketConnection(name="a"), TicketConnection(name="b")
    mine.set_secret("of its own")
    for column in mine.secret_columns():
        setattr(theirs, column, getattr(mine, column))
    assert mine.open_secret() == "of its own"
    with pytest.raises(CannotOpen):
        theirs.open_secret()


@pytest.mark.parametrize(
    ("url", "given", "is_carried_off"),
    [
        (f"{URL}/other", None, False),
        ("https://two.example/path", None, True),
        ("https://one.example:8443/path", None, True),
        ("http://one.example/path", None, True),
        ("https://two.example/path", "new", False),
        ("https://two.example/path", "", False),
    ],
)
def test_a_stored_secret_is_not_taken_along_to_another_host(make, url, given, is_carried_off):
    row = make("a")
    was, row.url = row.url, url
    assert remotes.is_carried_off(row, was, given) is is_carried_off
    row.set_secret("")
    assert not remotes.is_carried_off(row, was, given), "there is none"


def test_what_is_not_given_stays_and_what_is_empty_is_forgotten(make):
    row = make("a")
    remotes.seal(row, None)
    assert row.open_secret() == "of its own"
    remotes.seal(row, "")
    assert (row.has_secret, row.open_secret()) == (False, "")


def test_of_two_changes_of_one_version_the_second_is_refused(make):
    row = make("a")
    version = row.version
    row.url = f"{URL}/b"
    remotes.write(row, ["url"], by="x", version=version, title="the remote")
    with pytest.raises(Stale, match="The remote was changed"):
        remotes.write(row, ["url"], by="y", version=version, title="the remote")
    with pytest.raises(Stale):
        remotes.delete(row, version=version, title="the remote")
    row.refresh_from_db()
    assert (row.version, row.changed_by, row.open_secret()) == (version + 1, "x", "of its own")
    remotes.delete(row, version=version + 1, title="the remote")


def test_each_objection_is_under_its_field():
    remotes.refuse("No", [("url", ""), ("name", "")])
    with pytest.raises(Invalid) as caught:
        remotes.refuse("No", [("url", "one"), ("url", "two"), ("ca", "three"), ("name", "")])
    assert caught.value.fields == {"url": ["one", "two"], "ca": ["three"]}
