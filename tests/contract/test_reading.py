"""The port's reading: lists, watches, single objects."""

from __future__ import annotations

import pytest

from clusters import objects
from clusters.fleet import FleetRefused, Gone, NotFound
from contract.nodetuning import Spec


def events_of(events, name):
    return [e for e in events if e.object.get("metadata", {}).get("name") == name]


def names_of(items):
    return {i["metadata"]["name"] for i in items}


def test_a_node_is_read_as_it_is(world):
    made = world.node(name := world.name("node"), labels={"pool": "a"}, gpus=8)
    node = world.fleet.node(name)
    assert node["kind"] == "Node"
    assert node["metadata"]["uid"] == made["metadata"]["uid"]
    assert node["metadata"]["labels"]["pool"] == "a"
    assert objects.is_ready(node)
    assert objects.gpu_count(node["status"]["allocatable"]) == 8


@pytest.mark.parametrize("name", ["no-such-node", "..", "a/b", "", "UPPER", "a?b", "a%2fb", "a" * 300])
def test_what_is_not_there_is_refused(world, name):
    for call in (world.fleet.node, world.fleet.tuning):
        with pytest.raises(FleetRefused):
            call(name)
    with pytest.raises(NotFound):
        world.fleet.node("no-such-node")


@pytest.mark.parametrize("fresh", [True, False])
def test_a_list_holds_everything_of_a_kind(world, fresh):
    world.node(node := world.name("listed"))
    pod = world.name("pod")
    world.pod(pod, node)
    world.fleet.observe(node, world.fleet.node(node)["metadata"]["uid"], Spec(node_uid="x"))
    for kind, name in (("nodes", node), ("pods", pod), ("nodetunings", node)):
        # From the API server's cache a list may be a moment old, and says so by its resource version.
        page = world.until(lambda kind=kind, name=name: name_in(world.fleet.list(kind, fresh=fresh), name))
        assert int(page.resource_version) > 0
    assert isinstance(world.fleet.list("leases").items, list)


def test_names_and_versions_come_without_what_they_name(world):
    world.node(node := world.name("heads"))
    world.pod(pod := world.name("pod"), node)
    world.fleet.observe(node, world.fleet.node(node)["metadata"]["uid"], Spec(node_uid="x"))
    for kind, name in (("nodes", node), ("pods", pod), ("nodetunings", node)):
        page = world.until(lambda kind=kind, name=name: name_in(world.fleet.heads(kind), name))
        (head,) = [item for item in page.items if item["metadata"]["name"] == name]
        assert not {"spec", "status"} & set(head)
        assert head["metadata"]["uid"]
        assert int(head["metadata"]["resourceVersion"]) <= int(page.resource_version)


def test_of_what_is_not_kept_a_list_tells_the_uid_and_a_watch_the_names(world):
    world.node(node := world.name("kept"))
    first, second = world.name("pod"), world.name("pod")
    world.pod(first, node)

    def keep(raw):
        return raw if raw["metadata"]["name"] == first else None

    page = world.until(lambda: name_in(world.fleet.list("pods", keep=keep), first))
    assert names_of(page.items) == {first}
    (raw,) = page.items
    assert raw["metadata"]["uid"] not in page.left_out
    world.pod(second, node)

    event = next(
        e for e in world.fleet.watch("pods", page.resource_version, timeout=20, keep=keep) if name_of(e) == second
    )

    assert (event.type, event.is_brief, set(event.object)) == ("ADDED", True, {"metadata"})
    assert set(event.object["metadata"]) == {"name", "namespace", "uid", "resourceVersion"}
    heads = world.fleet.heads("pods", keep=keep)
    assert names_of(heads.items) == {first}
    assert event.object["metadata"]["uid"] in heads.left_out


def name_of(event):
    return event.object["metadata"].get("name")


def test_one_pod_is_read_by_its_name(world):
    world.node(node := world.name("of"))
    world.pod(pod := world.name("pod"), node)
    assert world.until(lambda: world.fleet.pod("default", pod))["spec"]["nodeName"] == node
    for namespace, name in (("default", "no-such-pod"), ("no-such-place", pod)):
        with pytest.raises(NotFound):
            world.fleet.pod(namespace, name)


def name_in(page, name):
    return page if name in names_of(page.items) else None


def test_pods_are_found_by_their_node(world):
    world.node(node := world.name("one"))
    world.node(two := world.name("two"))
    first, second = world.name("pod"), world.name("pod")
    world.pod(first, node)
    world.pod(second, two)
    assert first in names_of(world.fleet.pods_on(node))
    assert second not in names_of(world.fleet.pods_on(node))
    world.until(lambda: {first, second} <= names_of(world.fleet.pods()))
    assert world.fleet.pods_on("no-such-node") == []


def test_budgets_say_how_many_disruptions_they_allow(world):
    world.node(node := world.name("node"))
    label = {"app": world.name("app")}
    world.pod(world.name("pod"), node, labels=label)
    world.pod(world.name("pod"), node, labels=label)
    world.budget(name := world.name("budget"), label, 1)

    def budget():
        return next(b for b in world.fleet.budgets() if b["metadata"]["name"] == name)

    world.until(lambda: budget()["status"]["disruptionsAllowed"] == 1)
    assert budget()["spec"]["selector"]["matchLabels"] == label


def test_a_watch_tells_what_happened_after_its_version_in_order(world):
    version = world.fleet.list("nodes", fresh=True).resource_version
    world.node(name := world.name("watched"))
    world.edit("nodes", name, {"metadata": {"labels": {"seen": "yes"}}})
    world.delete_node(name)

    seen = []
    for event in world.fleet.watch("nodes", version, timeout=20):
        seen += events_of([event], name)
        if seen and seen[-1].type == "DELETED":
            break

    types = [e.type for e in seen]
    assert types[0] == "ADDED"
    assert types[-1] == "DELETED"
    assert set(types[1:-1]) == {"MODIFIED"}
    assert any(e.object["metadata"]["labels"].get("seen") == "yes" for e in seen)
    versions = [int(e.resource_version) for e in seen]
    assert versions == sorted(versions)
    assert versions[0] > int(version)


def test_a_watch_goes_on_where_another_ended(world):
    version = world.fleet.list("nodes", fresh=True).resource_version
    world.node(name := world.name("first"))
    for event in world.fleet.watch("nodes", version, timeout=20):
        if events_of([event], name):
            version = event.resource_version
            break
    world.node(later := world.name("second"))
    added = next(e for e in world.fleet.watch("nodes", version, timeout=20) if e.type == "ADDED")
    assert added.object["metadata"]["name"] == later


def test_a_watch_of_what_stays_as_it_is_ends_by_itself(world):
    """Events of others may come: a real server's collector still deletes what an earlier test left."""
    world.node(name := world.name("quiet"))
    world.fleet.observe(name, world.fleet.node(name)["metadata"]["uid"], Spec(node_uid="x"))
    version = world.fleet.list("nodetunings", fresh=True).resource_version
    assert events_of(world.fleet.watch("nodetunings", version, timeout=1), name) == []


def test_a_version_that_is_too_old_is_gone(world):
    version = world.fleet.list("nodes", fresh=True).resource_version
    world.node(world.name("later"))
    world.edit(
        "nodes",
        world.fleet.list("nodes", fresh=True).items[0]["metadata"]["name"],
        {"metadata": {"labels": {"a": "b"}}},
    )
    world.forget_history()
    with pytest.raises(Gone):
        list(world.fleet.watch("nodes", version, timeout=5))
    assert world.fleet.list("nodes").items  # listing again is the way on
