"""The port about the cluster as a whole: identity, permissions, equipment, ownership."""

from __future__ import annotations

import pytest

from clusters.fleet import Forbidden, Permission
from clusters.kube.apiserver import Call
from clusters.kube.permissions import REQUIRED_PERMISSIONS
from contract import names


def test_a_cluster_is_its_kube_system_namespace(world):
    identity = world.fleet.identify()
    assert identity.uid == world.kube_system_uid()
    assert identity.version.startswith("v1.")


def test_the_api_servers_clock_is_known(world):
    """Restart grants end by it. To the second, so it may seem to go back by less than one."""
    first = world.fleet.clock()
    assert first.tzinfo is not None
    assert (world.fleet.clock() - first).total_seconds() >= 0


def test_setpoint_has_every_permission_it_asks_for_and_cannot_create_nodes(world):
    reviews = world.fleet.review(REQUIRED_PERMISSIONS)
    assert [r.permission for r in reviews if not r.allowed] == []
    assert len(reviews) == len(REQUIRED_PERMISSIONS)
    assert all(p.why for p in REQUIRED_PERMISSIONS)
    [never] = world.fleet.review([Permission("create", "", "nodes")])
    assert never.allowed is False


def test_what_the_manifests_install_is_seen(world):
    node = world.name("equipped")
    world.node(node)
    equipment = world.fleet.equipment()
    assert (equipment.crd, equipment.agent_policy, equipment.spec_policy, equipment.missing) == (True, True, True, ())
    world.until(lambda: world.fleet.equipment().agent_ready >= 1)
    assert world.fleet.equipment().agent_desired >= 1


def test_a_cluster_has_one_owner_until_it_is_taken_over_or_released(world):
    fleet = world.fleet
    assert fleet.installation() is None
    assert fleet.claim("first") == "first"
    assert fleet.claim("first") == "first"  # twice is once
    assert fleet.claim("second") == "first"
    assert fleet.installation() == "first"
    fleet.release("second")
    assert fleet.installation() == "first"
    assert fleet.claim("second", take_over=True) == "second"
    assert fleet.installation() == "second"
    fleet.release("second")
    assert fleet.installation() is None
    fleet.release("second")


def test_a_refusal_names_verb_and_resource(world):
    world.node(node := world.name("guarded"))
    stranger = world.stranger()
    calls = {
        "get": lambda: stranger.node(node),
        "list": lambda: stranger.list("nodes"),
        "watch": lambda: list(stranger.watch("nodes", "1", timeout=1)),
        "patch": lambda: stranger.decorate(node, "x", labels={}, annotations={}),
    }
    for verb, call in calls.items():
        with pytest.raises(Forbidden) as refusal:
            call()
        assert verb in str(refusal.value)
        assert "nodes" in str(refusal.value)


def test_the_mark_is_where_a_person_would_look_for_it():
    assert (names.NAMESPACE, names.INSTALLATION_CONFIGMAP) == ("setpoint-system", "setpoint-installation")


@pytest.mark.parametrize(
    "path", ["/apis", "/version", "/api/v1/namespaces/kube-system", "/api/v1/nodes", "/apis/no.such"]
)
def test_no_answer_is_kept_without_asking_again(over_http, path):
    """helm and kubectl keep answers on disk; what a definition just added would stay unknown to them."""
    answer = over_http.server.send(Call("get", "answers"), "GET", path)
    assert "no-cache" in answer.headers["Cache-Control"]
