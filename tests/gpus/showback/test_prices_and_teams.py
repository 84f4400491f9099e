"""Prices never rewrite what is over, rules are judged before they count, and pages and REST say why they refuse."""

from __future__ import annotations

import re
from datetime import date, timedelta
from decimal import Decimal

import pytest
from django.test import Client
from hypothesis import given, settings
from hypothesis import strategies as st

from audit.models import Record
from common.errors import Invalid, NotAllowed, Stale, WrongState
from gpus.models import GpuPrice, GpuUse, Team
from gpus.showback import periods, prices, pricing, rules, teams
from gpus.showback.rules import Rule, RuleList
from tests.clusters.factories import ClusterFactory
from tests.factories import TokenClient, UserFactory
from tests.gpus.recording import PRODUCT

H100 = PRODUCT.replace("-", " ")
API = "/api/v1/gpus"


@pytest.fixture
def admin(db, clock):
    return UserFactory(roles=["admin"])


def put(admin, amount, day, **more):
    row = {"kind": "gpu", "model": PRODUCT, "amount": Decimal(amount), "valid_from": day, "by": admin} | more
    return pricing.set_price(**row)


def test_a_price_holds_from_its_day_and_one_of_a_cluster_goes_first(admin, settings):
    settings.SETPOINT_GPU_PRICES = {PRODUCT: 1.1}
    today, cluster = periods.today(), ClusterFactory()
    assert prices.book().gpu(H100, cluster.pk, today) == Decimal("1.1")
    put(admin, "2.5", today + timedelta(days=2))
    put(admin, "2.25", today + timedelta(days=4), cluster=cluster)
    book, other = prices.book(), ClusterFactory()
    held = [[book.gpu(H100, pk, today + timedelta(days=n)) for n in range(6)] for pk in (cluster.pk, other.pk)]
    general = [Decimal("1.1")] * 2 + [Decimal("2.5")] * 4
    assert held == [[*general[:4], Decimal("2.25"), Decimal("2.25")], general]
    assert book.gpu(f"{H100} MIG 1g.10gb", other.pk, today + timedelta(days=2)) == Decimal("2.5")
    assert book.changes(today, today + timedelta(days=4)) == [today + timedelta(days=2)]


def test_what_is_over_keeps_its_price(admin, clock, settings):
    settings.SETPOINT_GPU_PRICES = {}
    today = periods.today()
    first = put(admin, "2.5", today - timedelta(days=40))  # no price held: it may begin in the past
    for day, more in ((today - timedelta(days=1), {}), (today - timedelta(days=50), {})):
        with pytest.raises(Invalid) as refused:
            put(admin, "9", day, **more)
        assert str(today) in refused.value.fields["valid_from"][0]
    with pytest.raises(Invalid):
        put(admin, "9", today - timedelta(days=1), cluster=ClusterFactory())
    with pytest.raises(WrongState):
        pricing.withdraw(first, by=admin)
    second = put(admin, "3", today)
    with pytest.raises(Invalid, match="cannot be set"):
        put(admin, "4", today)
    pricing.withdraw(second, by=admin)
    third = put(admin, "4", today)
    clock.at += timedelta(days=1)
    with pytest.raises(WrongState):
        pricing.withdraw(third, by=admin)
    book = prices.book()
    assert [book.gpu(H100, None, today + timedelta(days=n)) for n in (-41, -40, -1, 0)] == [
        None, Decimal("2.5"), Decimal("2.5"), Decimal(4),
    ]  # fmt: skip
    records = Record.objects.filter(target=f"gpu_price:{second.pk}")
    assert sorted(records.values_list("action", flat=True)) == [
        "gpu_price.set", "gpu_price.withdraw",
    ]  # fmt: skip
    assert GpuPrice.objects.count() == 3  # the history keeps what was withdrawn


def test_the_mean_price_of_a_time_weighs_each_price_by_how_long_it_held(admin, clock, settings):
    settings.SETPOINT_GPU_PRICES = {}
    today = periods.today()
    put(admin, "2", today - timedelta(days=40))
    put(admin, "4", today)
    midnight = prices.midnight(today)
    mean = prices.book().mean(H100, None, midnight - timedelta(hours=3), midnight + timedelta(hours=1))
    assert float(mean) == pytest.approx((3 * 2 + 4) / 4)


BAD = [
    ("amount", {"amount": Decimal("-1")}),
    ("amount", {"amount": Decimal("NaN")}),
    ("amount", {"amount": Decimal("0.0000001")}),
    ("model", {"model": " "}),
    ("model", {"model": f"{PRODUCT}-MIG-1g.10gb"}),
    ("model", {"kind": "energy"}),
    ("pue", {"pue": Decimal("1.2")}),
    ("pue", {"kind": "energy", "model": "", "pue": Decimal("0.9")}),
    ("kind", {"kind": "water"}),
    ("valid_from", {"valid_from": date(2999, 1, 1)}),
]


def test_a_bad_price_is_refused_by_its_field(admin):
    for field, sent in BAD:
        with pytest.raises(Invalid) as refused:
            put(admin, day=periods.today(), **({"amount": "1"} | sent))
        assert list(refused.value.fields) == [field], sent
    assert not GpuPrice.objects.exists()


def test_who_is_admin_of_one_environment_sets_no_price_and_no_rule(db, clock):
    person = UserFactory(roles=["admin@env:production"])
    with pytest.raises(NotAllowed):
        put(person, "1", periods.today())
    with pytest.raises(NotAllowed):
        teams.save([], by=person, version=0)


PARTS = st.text("ab-", min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(PARTS, st.booleans()), max_size=6), PARTS)
def test_the_first_match_counts_and_a_covered_rule_never_has_its_turn(drawn, namespace):
    listed = RuleList(Rule("namespace", text + "*" * is_prefix, n + 1) for n, (text, is_prefix) in enumerate(drawn))
    naive = None
    for number, (text, is_prefix) in enumerate(drawn):
        if namespace.startswith(text) if is_prefix else namespace == text:
            naive = number + 1
            break
    assert listed.team(namespace) == naive
    assert naive not in {number for number, _ in listed.hidden()}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("namespace = A", "Line 1"),
        ("namespace a = A\nspace b = A", "Rule 2"),
        ("namespace a*b = A", "Rule 1"),
        ("owner nightly = A", "Kind/name"),
        ("namespace a = B", "no team 'B'"),
        ("namespace * = A\n\nnamespace a = A", "Rule 2: rule 1"),
        ("namespace a = A\nnamespace a = A", "Rule 2: rule 1"),
    ],
)
def test_a_wrong_rule_is_named_by_its_place(text, message):
    with pytest.raises(Invalid) as refused:
        rules.parsed(rules.lines(text), {"A": 1})
    assert message in " ".join(refused.value.fields["rules"])


def test_rules_survive_their_text_and_teams_in_use_stay(admin):
    team = teams.add(by=admin, name="Vision & Speech")
    text = "namespace vision-* = Vision & Speech\nowner Job/nightly-* = Vision & Speech\n"
    row = teams.save(rules.lines(text), by=admin, version=0)
    assert rules.as_text(rules.stored(row.rules), teams.names()) == text
    with pytest.raises(Stale):
        teams.save([], by=admin, version=0)
    with pytest.raises(WrongState, match=r"vision-\*"):
        teams.remove(team, by=admin)
    teams.save([], by=admin, version=row.version)
    teams.remove(team, by=admin)
    with pytest.raises(Invalid):
        teams.add(by=admin, name="Unassigned")
    assert Record.objects.filter(action="gpu_team_rules.save").count() == 2


def test_the_pages_preview_save_and_refuse_and_keep_what_was_typed(admin, clock):
    cluster, client = ClusterFactory(), Client()
    client.force_login(admin)
    for namespace, seconds in (("vision-a", 7200), ("lab", 3600)):
        GpuUse.objects.create(cluster=cluster, day=periods.today(), namespace=namespace, model=H100, held=seconds)
    assert client.post("/gpus/teams/", {"name": "Perception", "budget": "10.005"}).status_code == 422
    assert client.post("/gpus/teams/", {"name": "Perception", "budget": "10.50"}).status_code == 302
    wrong = client.post("/gpus/teams/rules/", {"rules": "namespace x = Nobody", "version": "0", "intent": "save"})
    assert wrong.status_code == 422
    assert "namespace x = Nobody" in wrong.content.decode()
    sent = {"rules": "namespace vision-* = Perception", "version": "0"}
    shown = client.post("/gpus/teams/rules/", sent | {"intent": "preview"})
    lines = [(row.namespace, row.team, row.moves, row.gpu_hours) for row in shown.context["preview"]]
    assert lines == [("vision-a", "Perception", True, 2.0), ("lab", "", False, 1.0)]
    assert not teams.current().rules
    assert client.post("/gpus/teams/rules/", sent | {"intent": "save"}).status_code == 302
    team = Team.objects.get()
    page = client.post(f"/gpus/teams/{team.pk}/", {"name": "Perception", "budget": "", "version": "99"})
    assert page.status_code == 412
    day = str(periods.today())
    price = {"kind": "gpu", "model": PRODUCT, "amount": "2.5", "valid_from": day}
    assert client.post("/gpus/prices/", price | {"valid_from": "soon"}).status_code == 422
    assert client.post("/gpus/prices/", price).status_code == 302
    page = re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", client.get("/gpus/cost/").content.decode()))
    assert "Perception 2.00 0.00 2.00 costs 5.00" in page.replace("GPUs", "")
    assert "5.50 left of 10.50, 48 % used" in page
    refused = client.get("/gpus/cost/?month=2026-13")
    assert refused.status_code == 422
    assert 'role="alert"' in refused.content.decode()


def test_rest_gives_the_pages_figures_line_by_line(admin, clock):
    cluster, client = ClusterFactory(), TokenClient(admin)
    day = periods.today()
    for number in range(3):
        GpuUse.objects.create(cluster=cluster, day=day, namespace=f"n{number}", model=H100, effective=3600 * 1.005)
        teams.add(by=admin, name=f"T{number}")
    text = "".join(f"namespace n{number} = T{number}\n" for number in range(3))
    teams.save(rules.lines(text), by=admin, version=0)
    put(admin, "1", day)
    page = client.get(f"{API}/statement/lines?limit=2").json()
    assert (page["count"], len(page["results"])) == (4, 2)  # three teams, and bands that lack these hours
    assert page["results"][0]["gpu_cost"] == "1.01"  # 1.005, rounded half up, once
    rest = client.get(page["next"]).json()["results"]
    assert [line["line"] for line in page["results"] + rest] == ["team", "team", "team", "not_attributed"]
    for query, field in (
        ("month=2026-1", "month"), ("from=2026-11-01", "to"), ("from=2026-11-02&to=2026-11-01", "to"),
        ("month=2026-11&to=2026-11-02", "month"), ("month=2999-01", "month"), ("from=2024-01-01&to=2024-02-01", "from"),
        ("from=2025-01-01&to=2026-11-01", "to"), ("team=x", "team"),
    ):  # fmt: skip
        answer = client.get(f"{API}/statement?{query}")
        assert answer.status_code in (400, 422), query
        assert field in answer.content.decode(), query
    for form in ("csv", "focus"):
        assert client.get(f"{API}/statement/export?as={form}").status_code == 200
    assert client.get(f"{API}/statement/export?as=xml").status_code in (400, 422)
