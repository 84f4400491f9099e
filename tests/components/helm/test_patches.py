"""The patch asks of the API server what helm will ask: that was compared on the real one (tests/full)."""

from __future__ import annotations

import pytest

from clusters.kube.apiserver import MERGE, STRATEGIC
from components.helm import patches


def container(name: str, **over) -> dict:
    return {"name": name, "image": "a"} | over


def test_what_the_new_manifest_lacks_is_deleted_at_every_depth():
    old = {"data": {"a": "1", "b": "2"}, "spec": {"x": {"y": 1, "z": 2}}, "gone": 1}
    new = {"data": {"a": "1"}, "spec": {"x": {"y": 1}}}
    patch, content_type = patches.client_side(old, new, is_custom=False)
    assert content_type == STRATEGIC
    assert patch == {"data": {"a": "1", "b": None}, "spec": {"x": {"y": 1, "z": None}}, "gone": None}


def test_items_of_merged_lists_are_deleted_by_their_key():
    old = {"containers": [container("one", env=[{"name": "A", "value": "1"}, {"name": "B", "value": "2"}])]}
    new = {"containers": [container("two"), container("one", env=[{"name": "B", "value": "3"}])]}
    patch, _ = patches.client_side(old, new, is_custom=False)
    assert patch["containers"] == [
        container("two"),
        container("one", env=[{"name": "B", "value": "3"}, {"$patch": "delete", "name": "A"}]),
    ]
    gone, _ = patches.client_side(new, old, is_custom=False)
    assert {"$patch": "delete", "name": "two"} in gone["containers"]


def test_ports_are_known_by_the_container_or_the_service():
    of_pod = patches.client_side(
        {"ports": [{"containerPort": 1}, {"containerPort": 2}]}, {"ports": [{"containerPort": 1}]}, is_custom=False
    )[0]
    of_service = patches.client_side({"ports": [{"port": 1}, {"port": 2}]}, {"ports": [{"port": 1}]}, is_custom=False)[
        0
    ]
    assert of_pod["ports"][-1] == {"$patch": "delete", "containerPort": 2}
    assert of_service["ports"][-1] == {"$patch": "delete", "port": 2}


def test_other_lists_are_replaced_whole():
    patch, _ = patches.client_side({"args": ["a", "b"]}, {"args": ["a"]}, is_custom=False)
    assert patch == {"args": ["a"]}
    patch, _ = patches.client_side({"env": [{"name": "A"}, "odd"]}, {"env": [{"name": "A"}]}, is_custom=False)
    assert patch == {"env": [{"name": "A"}]}


def test_a_custom_resource_gets_only_what_differs_between_the_manifests():
    old = {"spec": {"a": 1, "b": {"c": 2, "d": 3}, "list": [1]}, "same": {"x": 1}}
    new = {"spec": {"a": 1, "b": {"c": 4}, "list": [1, 2]}, "same": {"x": 1}}
    patch, content_type = patches.client_side(old, new, is_custom=True)
    assert content_type == MERGE
    assert patch == {"spec": {"b": {"c": 4, "d": None}, "list": [1, 2]}}
    assert patches.client_side(new, new, is_custom=True)[0] == {}


def test_an_object_that_no_manifest_had_before_gets_all_of_it():
    assert patches.client_side(None, {"a": 1}, is_custom=False) == ({"a": 1}, STRATEGIC)
    assert patches.client_side(None, {"a": 1}, is_custom=True) == ({"a": 1}, MERGE)


def test_helms_own_marks_make_an_object_the_releases():
    raw = {"metadata": {"name": "a", "labels": {"x": "y"}}}
    made = patches.marked(raw, "one", "space")
    assert made["metadata"]["labels"] == {"x": "y", "app.kubernetes.io/managed-by": "Helm"}
    assert patches.is_owned(made, "one", "space")
    assert not patches.is_owned(made, "two", "space")
    assert not patches.is_owned(raw, "one", "space")
    assert raw == {"metadata": {"name": "a", "labels": {"x": "y"}}}


# ── Grafana has a port for TCP and UDP, and so has every DNS server's Service: one merge key, two items ───────────────
TWICE = [
    {"name": "tcp", "containerPort": 9094, "protocol": "TCP"},
    {"name": "udp", "containerPort": 9094, "protocol": "UDP"},
]


def ports(patch):
    return patch["spec"]["containers"][0].get("ports")


def pod(*items):
    return {"spec": {"containers": [{"name": "main", "ports": list(items)}]}}


@pytest.mark.parametrize("old", [pod(*TWICE), None])
def test_a_list_that_has_a_key_twice_is_not_sent_where_it_is_so_already(old):
    """An API server would merge both items into the first: `Duplicate value`."""
    live = pod(*({**port, "hostPort": 1} for port in TWICE), {"name": "beside", "containerPort": 1})
    patch, _ = patches.client_side(old, pod(*TWICE), is_custom=False, live=live)
    assert patch == {"spec": {"containers": [{"name": "main"}]}}


@pytest.mark.parametrize("live", [pod(TWICE[0]), pod(*TWICE[::-1], TWICE[0] | {"name": "a"}), {}])
def test_a_list_that_has_a_key_twice_is_replaced_where_it_is_otherwise(live):
    old = pod(*TWICE, {"name": "gone", "containerPort": 1})
    patch, _ = patches.client_side(old, pod(*TWICE), is_custom=False, live=live)
    assert ports(patch) == [{"$patch": "replace"}, *TWICE]
