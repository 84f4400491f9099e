"""Calendar rules over REST and on their pages: permissions, refusals and the record."""

from __future__ import annotations

import pytest
from django.test import Client

from audit.models import Record
from clusters.services.pools import delete_pool
from common.errors import WrongState
from jobs.calendars import rulebook
from jobs.calendars.targets import entries_of
from jobs.models import CalendarRule
from tests.clusters.factories import PoolFactory
from tests.factories import TokenClient, UserFactory
from tests.jobs.rest import fields_of

PATH = "/api/v1/calendar-rules"
NIGHT = {
    "name": "nightly",
    "kind": "window",
    "starts": "2030-03-29T22:00",
    "zone": "Europe/Berlin",
    "minutes": 120,
    "rule": "FREQ=DAILY",
}


def test_a_rule_is_written_changed_and_ended_over_rest_and_each_is_recorded(world):
    client = TokenClient(world.admin)
    made = client.post(PATH, NIGHT | {"cluster": str(world.cluster.pk)})
    assert made.status_code == 201, made.json()
    rule = made.json()
    assert rule["about"] == world.cluster.name
    assert len(rule["occurrences"]) == 10
    # Clocks were put forward between the first and the third night.
    assert [o["start"][11:16] for o in rule["occurrences"][:3]] == ["21:00", "21:00", "20:00"]
    assert {o["local_start"][16:21] for o in rule["occurrences"]} == {"22:00"}

    assert client.patch(made["Location"], {"minutes": 60}).status_code == 428
    changed = client.patch(made["Location"], {"minutes": 60}, HTTP_IF_MATCH=made["ETag"])
    assert (changed.status_code, changed.json()["minutes"], changed.json()["rule"]) == (200, 60, "FREQ=DAILY")
    assert client.patch(made["Location"], {"minutes": 90}, HTTP_IF_MATCH=made["ETag"]).status_code == 412
    assert entries_of(world.cluster, world.pool.pk)

    gone = client.delete(made["Location"], headers={"If-Match": changed["ETag"]})
    assert gone.status_code == 204
    assert client.get(made["Location"]).status_code == 404
    assert not entries_of(world.cluster, world.pool.pk)
    assert CalendarRule.objects.get().ended_at  # kept
    written = Record.objects.filter(action__startswith="calendar-rule.").order_by("pk")
    assert {record.action for record in written} == {
        "calendar-rule.create",
        "calendar-rule.change",
        "calendar-rule.end",
    }
    assert client.post(PATH, NIGHT).status_code == 201  # the name of an ended rule is free


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"zone": "Mars/Olympus", "rule": "FREQ=SECONDLY"}, {"zone"}),
        ({"rule": "FREQ=SECONDLY"}, {"rule"}),
        ({"starts": "2030-03-29"}, {"starts"}),
        ({"minutes": 1}, {"minutes"}),
        ({"kind": "gap"}, {"kind"}),
        ({"environment": "production", "cluster": "own"}, {"environment"}),
        ({"pool": 10**6}, {"pool"}),
        ({"excluded": ["x"]}, {"excluded"}),
        ({"color": "red"}, {"color"}),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_stored(world, fields, names):
    sent = {k: str(world.cluster.pk) if v == "own" else v for k, v in (NIGHT | fields).items()}
    assert fields_of(TokenClient(world.admin).post(PATH, sent)) >= names
    assert not CalendarRule.objects.exists()


def test_only_an_administrator_of_all_clusters_writes_rules_and_only_a_few_hundred(world, monkeypatch):
    for user in (world.operator, world.approver, UserFactory(roles=["admin@env:staging"])):
        assert TokenClient(user).post(PATH, NIGHT).status_code == 403
    assert not CalendarRule.objects.exists()
    monkeypatch.setattr(rulebook, "MOST_RULES", 1)
    client = TokenClient(world.admin)
    assert client.post(PATH, NIGHT).status_code == 201
    assert fields_of(client.post(PATH, NIGHT | {"name": "another"})) == {"name"}
    monkeypatch.setattr(rulebook, "MOST_RULES", 2)
    assert fields_of(client.post(PATH, NIGHT)) == {"name"}


def test_a_pool_stays_as_long_as_a_rule_names_it(world):
    """An operator, who writes no rules, would end one with its pool."""
    pool = PoolFactory(cluster=world.cluster, name="spare")
    rule = rulebook.create(by=world.admin, **NIGHT | {"kind": "freeze", "pool": pool})
    with pytest.raises(WrongState, match="nightly"):
        delete_pool(pool, by=world.operator)
    rulebook.end(rule, by=world.admin, version=rule.version)
    delete_pool(pool, by=world.operator)


def test_the_page_previews_without_saving_saves_and_ends(world):
    browser = Client()
    browser.force_login(world.admin)
    sent = {**NIGHT, "repeats": "custom", "rule": "FREQ=MONTHLY;BYDAY=2TU", "starts": "2030-04-09T22:00"}
    shown = browser.post("/windows/", sent | {"preview": "1"})
    assert shown.status_code == 200
    assert len(shown.context["preview"]) == 10
    assert not CalendarRule.objects.exists()
    assert browser.post("/windows/", sent).status_code == 302
    row = CalendarRule.objects.get()
    page = browser.get(f"/windows/{row.pk}/")
    assert [o.start for o in page.context["occurrences"]] == [o.start for o in shown.context["preview"]]
    assert page.context["form"]["repeats"].value() == "custom"
    wrong = browser.post(f"/windows/{row.pk}/", sent | {"repeats": "FREQ=DAILY", "version": row.version})
    assert (wrong.status_code, set(wrong.context["form"].errors)) == (422, {"rule"})
    assert browser.post(f"/windows/{row.pk}/end/", {"version": row.version}).status_code == 302
    assert not CalendarRule.objects.in_effect().exists()


def test_the_page_of_a_rule_can_be_sent_with_another_repetition(world):
    browser = Client()
    browser.force_login(world.admin)
    row = rulebook.create(by=world.admin, **NIGHT)
    form = browser.get(f"/windows/{row.pk}/").context["form"]
    shown = {name: form[name].value() or "" for name in form.fields}
    assert browser.post(f"/windows/{row.pk}/", shown | {"repeats": "FREQ=WEEKLY"}).status_code == 302
    row.refresh_from_db()
    assert (row.rule, row.starts) == ("FREQ=WEEKLY", NIGHT["starts"])
