"""REST over compliance: lists as everywhere, counts that sum, and a mode that can only be weakened."""

from __future__ import annotations

from typing import Any

import pytest

from tests.factories import TokenClient, UserFactory
from tests.jobs.conftest import World

LISTS = ("nodes", "settings", "changes", "outliers", "assignments")


@pytest.fixture
def api(world: World) -> TokenClient:
    """Client of an operator with all permissions; n2 drifted by a file."""
    world.run(world.started())
    world.sim.drop_file("n2", "/etc/sysctl.d/99-site.conf", "vm.swappiness = 60")
    world.sim.drift("n2", "vm.swappiness", "60")
    world.tick(6)
    return TokenClient(world.operator)


def results(api: TokenClient, path: str) -> list[dict[str, Any]]:
    answer = api.get(f"/api/v1/compliance/{path}")
    assert answer.status_code == 200, answer.json()
    return list(answer.json()["results"])


def test_a_node_says_how_it_stands_and_why(api: TokenClient) -> None:
    (node,) = results(api, "nodes?state=drifted")
    assert (node["name"], node["pool_name"], node["target"], node["expected"]) == ("n2", "train", "gpu r1", "gpu r1")
    assert "/etc/sysctl.d/99-site.conf:1" in node["reason"]
    assert api.get(f"/api/v1/compliance/nodes/{node['id']}").json() == node


def test_a_setting_says_what_won_and_by_which_rollout(api: TokenClient, world: World) -> None:
    (row,) = results(api, "settings?state=drifted&key=vm.swappiness")
    assert {name: row[name] for name in ("desired", "written", "effective", "original")} == {
        "desired": "10", "written": "10", "effective": "60", "original": "60",
    }  # fmt: skip
    assert (row["cause"], row["won_by"]) == ("file", "/etc/sysctl.d/99-site.conf:1")
    assert results(api, f"settings?rollout={row['rollout']}&node={row['node']}") == [row]
    assert [c["state"] for c in results(api, f"changes?node={row['node']}&ordering=at")] == [
        "pending", "compliant", "drifted",
    ]  # fmt: skip


@pytest.mark.parametrize("name", LISTS)
def test_lists_page_by_key_and_select_fields(api: TokenClient, name: str) -> None:
    whole = results(api, f"{name}?start=")
    page = api.get(f"/api/v1/compliance/{name}?start=&limit=2").json()
    seen = page["results"]
    while page["next"]:
        page = api.get(page["next"]).json()
        seen += page["results"]
    assert seen == whole
    assert [row["id"] for row in seen] == sorted(row["id"] for row in seen)
    assert all(row.keys() == {"id"} for row in results(api, f"{name}?fields=id"))


def test_what_is_not_understood_is_refused_by_name(api: TokenClient) -> None:
    for name in LISTS:
        for query in ("color=red", "ordering=color", "limit=0", "start=x", "cluster=%00", "fields=color"):
            answer = api.get(f"/api/v1/compliance/{name}?{query}")
            assert answer.status_code in (400, 422), (name, query)
            assert answer["Content-Type"] == "application/problem+json", (name, query)


def test_a_wrong_value_of_a_filter_is_refused(api: TokenClient) -> None:
    big = "99999999999999999999"
    for query in (
        "state=sunny",
        "pool=x",
        f"pool={big}",
        "since=tomorrow",
        "joining=perhaps",
        "outlier=-1",
        "cause=me",
    ):
        answer = api.get(f"/api/v1/compliance/nodes?{query}")
        assert answer.status_code in (400, 422), query
        assert answer.json()["errors"][0]["field"] == query.split("=")[0]


def test_filters_find(api: TokenClient) -> None:
    for place in ("cluster=atlas", "environment=staging", "cause=file", "file=/etc/sysctl.d/99-site.conf"):
        assert "n2" in {row["name"] for row in results(api, f"nodes?{place}")}, place
    assert results(api, "nodes?cluster=elsewhere") == results(api, "nodes?file=/etc/other") == []


def test_a_cluster_can_be_named_by_id_too(api: TokenClient, world: World) -> None:
    assert len(results(api, f"settings?cluster={world.cluster.pk}")) == 3


def test_the_summary_and_the_matrix_sum(api: TokenClient, world: World) -> None:
    summary = api.get("/api/v1/compliance/summary").json()
    assert summary["counts"] == {"compliant": 2, "drifted": 1, "pending": 0, "unknown": 0, "unassigned": 0}
    assert summary["clusters"][0]["counts"] == summary["pools"][0]["counts"] == summary["counts"]
    assert api.get("/api/v1/compliance/summary?cluster=nowhere").json()["clusters"] == []
    matrix = api.get("/api/v1/compliance/matrix?environment=staging").json()
    assert matrix["settings"] == [
        {
            "key": "vm.swappiness",
            "cells": [{"pool": world.pool.pk, "counts": summary["counts"], "weakens_security": ""}],
        }
    ]
    assert api.get("/api/v1/compliance/summary?pool=3").status_code in (400, 422)
    assert api.get("/api/v1/compliance/matrix?environment=moon").status_code in (400, 422)


def test_an_assignment_offers_what_works(world: World) -> None:
    world.run(world.started(enforce=True))
    api = TokenClient(world.operator)
    (row,) = results(api, "assignments?mode=enforce&revision=gpu")
    assert (row["actions"], row["permissions"]) == ({"observe": True}, {"observe": True})
    answer = api.post(f"/api/v1/compliance/assignments/{row['id']}/actions/observe", {"reason": "they fight"})
    assert (answer.status_code, answer.json()["mode"]) == (202, "apply")
    assert answer.json()["actions"] == {"observe": False}
    again = api.post(f"/api/v1/compliance/assignments/{row['id']}/actions/observe")
    assert (again.status_code, again.json()["code"]) == (409, "wrong-state")
    too_long = api.post(f"/api/v1/compliance/assignments/{row['id']}/actions/observe", {"reason": "x" * 501})
    assert too_long.status_code == 422


def test_a_token_without_the_scope_apply_weakens_nothing(world: World) -> None:
    world.run(world.started(enforce=True))
    reader = TokenClient(world.operator, scopes=["read"])
    (row,) = results(reader, "assignments")
    assert row["permissions"] == {"observe": False}
    assert reader.post(f"/api/v1/compliance/assignments/{row['id']}/actions/observe").status_code == 403


def test_a_stranger_finds_nothing(api: TokenClient) -> None:
    stranger = TokenClient(UserFactory(roles=["viewer@env:production"]))
    for name in LISTS:
        assert results(stranger, name) == []
    assert stranger.get("/api/v1/compliance/summary").json()["clusters"] == []
