"""Settings that weaken a node's security are marked wherever their values are shown, by the one judgment of profiles.

Pages, lists, files and REST count the same rows; the law is held against that judgment, row by row.
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import re
from typing import Any

import pytest

from clusters.models import Node
from compliance.models import Assignment, ComplianceState, Outlier, SettingState
from compliance.services import standings
from profiles.catalog import weakening
from profiles.models import Revision
from tests.compliance.reports.test_pages import browser, text
from tests.factories import TokenClient, UserFactory
from tests.jobs.conftest import World

SIDES = "weakens_security=wanted&weakens_security=observed"
VALUES = (
    ("kernel.kptr_restrict", "=", ("0", "1", "-1")),
    ("kernel.kptr_restrict", ">=", ("0", "1")),
    ("kernel.sysrq", "=", ("1", "176", "511")),
    ("kernel.sysrq", "<=", ("511",)),
    ("cmdline.mitigations", "=", ("off", "auto")),
    ("cmdline.audit", "=", ("0", "1")),
    ("vm.dirty_ratio", "=", ("0", "1")),
)
OBSERVED = (None, "0", "1", "off", "auto", "511", "x" * 40)


def weak_sides(row: SettingState) -> list[str]:
    """Judge a row's values as plans and profiles do."""
    seen = {"wanted": (row.operator, row.desired), "observed": ("=", row.effective)}
    return [side for side, (operator, value) in seen.items() if weakening.reason(row.key, operator, value)]


@pytest.fixture
def weak(world: World) -> World:
    """n1 wants a weak value and has it; n2 wants a good one and has a weak one; n3 has none, and n4 is gone."""
    world.run(world.started())
    seen = {
        "n1": ("0", "0", ComplianceState.COMPLIANT),
        "n2": ("1", "0", ComplianceState.DRIFTED),
        "n3": ("1", "1", ComplianceState.COMPLIANT),
    }
    for name, (desired, effective, state) in seen.items():
        SettingState.objects.create(
            node=world.node(name), key="kernel.kptr_restrict", desired=desired, effective=effective, state=state
        )
    standings.renew_all(world.cluster.pk)
    return world


def results(api: TokenClient, path: str) -> list[dict[str, Any]]:
    answer = api.get(f"/api/v1/compliance/{path}")
    assert answer.status_code == 200, answer.json()
    return list(answer.json()["results"])


def test_a_row_says_whether_the_wanted_or_the_observed_value_weakens_security_and_why(weak: World) -> None:
    rows = results(TokenClient(weak.admin), "settings?key=kernel.kptr_restrict")
    assert {row["node_name"]: row["weakens_security"] for row in rows} == {
        "n1": ["wanted", "observed"], "n2": ["observed"], "n3": [],
    }  # fmt: skip
    why = weakening.reason("kernel.kptr_restrict", "=", "0")
    assert {row["node_name"]: row["why_it_weakens"] for row in rows} == {"n1": why, "n2": why, "n3": ""}


def test_every_number_of_pages_and_rest_is_the_same(weak: World) -> None:
    client, api = browser(weak.admin), TokenClient(weak.admin)
    summary = api.get("/api/v1/compliance/summary").json()
    assert summary["weakens_security"] == {"settings": 2, "nodes": 2, "wanted": 1, "observed": 2}
    assert [row["weakens_security"] for row in summary["clusters"]] == [summary["weakens_security"]]
    fleet = client.get("/compliance/").content.decode()
    shown = {name: int(number) for name, number in re.findall(r'data-weak-(\w+)="(\d+)"', fleet)}
    assert shown == summary["weakens_security"]
    cluster = client.get(f"/compliance/clusters/{weak.cluster.pk}/weak/").content.decode()
    assert re.findall(r'data-weak-nodes="(\d+)"', cluster) == ["2"]
    assert len(results(api, f"settings?{SIDES}")) == 2
    assert "Weakens security 2" in text(weak.admin, f"/compliance/settings/?{SIDES}")
    assert {row["name"] for row in results(api, f"nodes?{SIDES}")} == {"n1", "n2"}
    assert {row["name"] for row in results(api, "nodes?weakens_security=wanted")} == {"n1"}
    assert {row["name"]: row["weakening"] for row in results(api, "nodes")} == {"n1": 1, "n2": 1, "n3": 0}
    assert "2 nodes match the filter" in text(weak.admin, f"/compliance/nodes/?{SIDES}")
    for name, path in (("n1", "wanted observed"), ("n2", "observed")):
        page = client.get(f"/nodes/{weak.node(name).pk}/").content.decode()
        assert re.findall(r'data-weak="([^"]*)"', page) == [path]
    assert "data-weak" not in client.get(f"/nodes/{weak.node('n3').pk}/").content.decode()


def test_the_links_of_the_page_lead_to_the_rows_that_it_counts(weak: World) -> None:
    client = browser(weak.admin)
    page = client.get("/compliance/?cluster=atlas").content.decode()
    card = page[page.index('aria-labelledby="h-weak"') :]
    links = [link.replace("&amp;", "&") for link in re.findall(r'href="(/compliance/settings/\?[^"]*)"', card)[:3]]
    listed = [client.get(link).context["page"].paginator.count for link in links]
    assert listed == [2, 2, 1], "all; observed on two nodes, wanted on one"


def test_files_say_it_too(weak: World) -> None:
    client = browser(weak.admin)
    body = b"".join(client.get("/compliance/settings.csv?key=kernel.kptr_restrict").streaming_content).decode()
    rows = {row["node"]: row["weakens_security"] for row in csv.DictReader(io.StringIO(body))}
    assert rows == {"n1": "wanted, observed", "n2": "observed", "n3": ""}
    nodes = json.loads(b"".join(client.get("/compliance/nodes.json").streaming_content))
    assert {row["node"]: row["weakening"] for row in nodes} == {"n1": 1, "n2": 1, "n3": 0}


def test_the_lists_choose_exactly_what_the_one_judgement_calls_weak(world: World) -> None:
    """The law holds over every operator, value and answer that the judgment tells apart."""
    SettingState.objects.all().delete()
    made = [(*case[:2], *pair) for case in VALUES for pair in itertools.product(case[2], OBSERVED)]
    nodes = Node.objects.bulk_create(
        Node(cluster=world.cluster, uid=f"u{number}", name=f"w{number:03}") for number in range(len(made))
    )
    rows = SettingState.objects.bulk_create(
        SettingState(node=node, key=key, operator=operator, desired=desired, effective=effective)
        for node, (key, operator, desired, effective) in zip(nodes, made, strict=True)
    )
    api = TokenClient(world.admin)
    for side in weakening.SIDES:
        listed = {row["id"] for row in results(api, f"settings?weakens_security={side}&start=&limit=1000")}
        assert listed == {row.pk for row in rows if side in weak_sides(row)}
    assert {row["id"]: row["weakens_security"] for row in results(api, "settings?start=&limit=1000")} == {
        row.pk: weak_sides(row) for row in rows
    }


def test_the_matrix_marks_what_a_target_wants(world: World) -> None:
    world.run(world.started())
    revision = world.pool.assignment.revision
    wanted = [{"key": "kernel.sysrq", "operator": "=", "value": "1"}, *revision.content["settings"]]
    content = {**revision.content, "settings": wanted}
    other = Revision.objects.create(
        profile=revision.profile, number=9, digest=f"sha256:{'9' * 64}", source="", content=content
    )
    Assignment.objects.filter(pool=world.pool).update(revision=other)
    settings = TokenClient(world.admin).get("/api/v1/compliance/matrix").json()["settings"]
    marks = {row["key"]: row["cells"][0]["weakens_security"] for row in settings}
    assert marks == {"kernel.sysrq": weakening.reason("kernel.sysrq", "=", "1"), "vm.swappiness": ""}
    page = browser(world.admin).get("/compliance/").content.decode()
    assert page.count("weakens security</span>") == 0
    assert page.count(f'title="Weakens security: {marks["kernel.sysrq"]}"') == 1


def test_a_peer_that_differs_by_a_weak_value_is_marked_though_nobody_asked_for_it(world: World) -> None:
    Outlier.objects.create(
        cluster=world.cluster, scope="cluster", peers="H100", key="cmdline.mitigations", usual="auto", usual_nodes=40,
        count=1, values=[{"value": "off", "count": 1, "names": ["n1"]}],
    )  # fmt: skip
    assert "weakens security" in text(world.admin, "/compliance/")
    row = results(TokenClient(world.admin), "outliers")[0]
    assert [value["weakens_security"] for value in row["values"]] == [
        weakening.reason("cmdline.mitigations", "=", "off")
    ]


def test_who_sees_no_cluster_counts_nothing(weak: World) -> None:
    stranger = UserFactory(email="stranger@example.com", roles=["viewer@env:production"])
    summary = TokenClient(stranger).get("/api/v1/compliance/summary").json()
    assert set(summary["weakens_security"].values()) == {0}
    assert browser(stranger).get(f"/compliance/clusters/{weak.cluster.pk}/weak/").status_code == 404
    assert results(TokenClient(stranger), f"settings?{SIDES}") == []


def test_another_side_is_refused_by_name(weak: World) -> None:
    for name in ("settings", "nodes"):
        answer = TokenClient(weak.admin).get(f"/api/v1/compliance/{name}?weakens_security=perhaps")
        assert answer.status_code in (400, 422)
        assert answer.json()["errors"][0]["field"] == "weakens_security"
