"""The port's writes to NodeTunings: created once in mode observe, replaced whole, collected with their node."""

from __future__ import annotations

import pytest

from clusters.fleet import NotFound
from contract.nodetuning import Mode, RestartGrant, Restore, Spec, Wanted


@pytest.fixture
def node(world):
    made = world.node(world.name("node"))
    return made["metadata"]["name"], made["metadata"]["uid"]


def full(uid, attempt=1):
    return Spec(
        node_uid=uid,
        mode=Mode.APPLY,
        rollout="r1",
        step="s1",
        attempt=attempt,
        revision="sha256:abc",
        settings=(Wanted("vm.swappiness", "=", "10", "60"), Wanted("cmdline.mitigations", "=", "off", None)),
        restore=(Restore("vm.max_map_count", "65530", "262144"),),
        observe=("vm.swappiness",),
        restart=RestartGrant("g1", "reboot", "boot-1", "2026-11-23T00:00:00Z"),
    )


def test_a_tuning_is_created_once_and_belongs_to_its_node(world, node):
    name, uid = node
    made = world.fleet.observe(name, uid, Spec(node_uid=uid, observe=("vm.swappiness",)))
    assert made["metadata"]["name"] == name
    [owner] = made["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("Node", name, uid)
    assert Spec.from_json(made["spec"]) == Spec(node_uid=uid, observe=("vm.swappiness",))
    again = world.fleet.observe(name, uid, full(uid))
    assert again["metadata"]["uid"] == made["metadata"]["uid"]
    assert again["metadata"]["generation"] == made["metadata"]["generation"] == 1


def test_a_spec_survives_the_api_server_whole(world, node):
    name, uid = node
    world.fleet.observe(name, uid, Spec(node_uid=uid))
    written = world.fleet.tune(name, full(uid))
    assert written["metadata"]["generation"] == 2
    assert Spec.from_json(written["spec"]) == full(uid)
    assert Spec.from_json(world.fleet.tuning(name)["spec"]) == full(uid)


def test_a_new_spec_leaves_nothing_of_the_old_one(world, node):
    name, uid = node
    world.fleet.observe(name, uid, Spec(node_uid=uid))
    world.fleet.tune(name, full(uid))
    bare = Spec(node_uid=uid, mode=Mode.APPLY, settings=(Wanted("kernel.pid_max", ">=", "65536", "32768"),))
    assert Spec.from_json(world.fleet.tune(name, bare)["spec"]) == bare  # above all no restart grant


def test_the_same_spec_twice_is_one_generation(world, node):
    name, uid = node
    world.fleet.observe(name, uid, Spec(node_uid=uid))
    first = world.fleet.tune(name, full(uid))
    second = world.fleet.tune(name, full(uid))
    assert second["metadata"]["generation"] == first["metadata"]["generation"]
    assert world.fleet.tune(name, full(uid, attempt=2))["metadata"]["generation"] == 3


def test_what_the_agent_reports_is_no_new_generation_and_outlives_a_new_spec(world, node):
    name, uid = node
    made = world.fleet.observe(name, uid, Spec(node_uid=uid))
    world.report(name, {"observedGeneration": 1, "observed": '{"vm.swappiness": "60"}'})
    seen = world.fleet.tuning(name)
    assert seen["metadata"]["generation"] == made["metadata"]["generation"]
    assert seen["status"]["observed"] == '{"vm.swappiness": "60"}'
    assert world.fleet.tune(name, full(uid))["status"]["observed"] == '{"vm.swappiness": "60"}'


def test_without_an_object_there_is_nothing_to_tune(world, node):
    name, uid = node
    with pytest.raises(NotFound):
        world.fleet.tune(name, full(uid))
    with pytest.raises(NotFound):
        world.fleet.tuning(name)


def test_a_tuning_goes_with_its_node_and_not_with_its_name(world, node):
    name, uid = node
    old = world.fleet.observe(name, uid, Spec(node_uid=uid))
    new = world.replace_node(name)

    def renewed():
        try:
            tuning = world.fleet.tuning(name)
        except NotFound:
            tuning = world.fleet.observe(name, new["metadata"]["uid"], Spec(node_uid=new["metadata"]["uid"]))
        return tuning if tuning["metadata"]["uid"] != old["metadata"]["uid"] else None

    assert world.until(renewed)["spec"]["nodeUID"] == new["metadata"]["uid"]
