"""A component through helm v3 and v4 on the real control plane: planned, installed, upgraded, put back, mended."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from clusters.connection import helm_credentials, registry
from clusters.fleet import FleetError, Forbidden
from clusters.kube import discovery
from clusters.net.credentials import Credentials
from components.helm import releases
from components.helm.client import HelmRefused, HelmTimeout, ReleaseBusy, Stopped
from components.plans.prepared import Prepared
from components.release import work
from contract import names
from profiles.content.cluster import WantedComponent
from tests.clusters.factories import ClusterFactory, reached_with
from tests.controlplane.admin import Admin
from tests.controlplane.plane import Plane
from tests.full.components.tiny_chart import COMPONENTS, World, by_hand, world
from tests.full.harness.client import eventually

__all__ = ["world"]
pytestmark = pytest.mark.django_db


def shown(prepared: Prepared) -> dict[tuple[str, str], str]:
    return {(difference.kind, difference.name): difference.change for difference in prepared.objects}


def test_a_first_install_and_its_revert(world: World) -> None:
    prepared = world.prepare(color="blue")
    assert (prepared.action, prepared.from_revision, prepared.back_to) == ("install", 0, 0)
    assert [note for note in prepared.notes if note.severity == "block"] == []
    assert shown(prepared) == {
        ("Namespace", world.namespace): "created",
        ("ConfigMap", "tiny-settings"): "unvalidated",
        ("Secret", "tiny-made"): "unvalidated",
        ("DaemonSet", "tiny-agent"): "unvalidated",
    }
    assert "blue" in next(difference.diff for difference in prepared.objects if difference.name == "tiny-settings")
    assert prepared.masked == ("v1/Secret//tiny-made#/stringData/password",)
    assert world.data() is None, "a plan wrote something"

    world.carry_out(prepared)
    world.until_ready(prepared)
    assert world.data() == {"color": "blue", "old": "only in the first"}
    assert world.carry_out(prepared) == ["tiny is installed already."]
    assert world.statuses() == ["deployed"]
    space = world.admin.get("namespaces", world.namespace)
    assert space["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "baseline"

    world.carry_out(prepared, "revert")
    world.until_ready(prepared, "revert")
    assert world.data() is None
    world.carry_out(prepared, "revert")
    assert world.statuses() == []


def test_a_removal_is_planned_carried_out_and_put_back(world: World) -> None:
    first = world.prepare("1.0.0")
    world.carry_out(first)
    world.until_ready(first)
    made = work.prepare(world.cluster, WantedComponent("tiny", is_gone=True))
    removal = Prepared.from_json(made.to_json())
    assert (removal.action, {difference.change for difference in removal.objects}) == ("remove", {"deleted"})

    world.carry_out(removal)
    world.until_ready(removal)
    assert work.prepare(world.cluster, WantedComponent("tiny", is_gone=True)).action == "none"

    world.carry_out(removal, "revert")
    world.until_ready(removal, "revert")


def test_what_was_removed_is_installed_again_and_both_are_put_back_in_reverse_order(world: World) -> None:
    first = world.prepare("1.0.0", color="blue")
    world.carry_out(first)
    world.until_ready(first)
    removal = Prepared.from_json(work.prepare(world.cluster, WantedComponent("tiny", is_gone=True)).to_json())
    assert ("Namespace", world.namespace) not in shown(removal)
    world.carry_out(removal)
    world.until_ready(removal)

    again = world.prepare("2.0.0", color="red")
    assert [note for note in again.notes if note.severity == "block"] == []
    assert (again.action, again.from_revision, again.back_to) == ("install", 1, 0)
    assert ("Namespace", world.namespace) not in shown(again), "it stayed"
    world.carry_out(again)
    world.until_ready(again)
    assert (world.history().last.number, world.data()) == (2, {"color": "red"})

    world.carry_out(again, "revert")
    world.until_ready(again, "revert")
    assert world.data() is None
    world.carry_out(removal, "revert")
    world.until_ready(removal, "revert")
    assert (world.history().last.status, world.data()) == ("deployed", {"color": "blue", "old": "only in the first"})


def test_a_removal_after_a_failed_upgrade_leaves_nothing_in_force(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """helm marks only the revision that failed as removed, and the one before it stays recorded as deployed."""
    first = world.prepare("1.0.0", color="blue")
    world.carry_out(first)
    world.until_killed(world.prepare("3.0.0"), monkeypatch)
    with registry.api_server(world.cluster) as server:
        releases.mend(server, world.history().last, "for a test")
    assert world.statuses() == ["deployed", "failed"]
    removal = Prepared.from_json(work.prepare(world.cluster, WantedComponent("tiny", is_gone=True)).to_json())
    world.carry_out(removal)
    world.until_ready(removal)
    assert world.data() is None

    assert work.prepare(world.cluster, WantedComponent("tiny", is_gone=True)).action == "none"
    again = world.prepare("1.0.0", color="blue")
    assert again.action == "install"
    world.carry_out(again)
    world.until_ready(again)
    assert world.data() == {"color": "blue", "old": "only in the first"}


def test_an_upgrade_shows_what_it_will_do_does_it_and_goes_back(world: World) -> None:
    first = world.prepare(color="blue")
    world.carry_out(first)
    world.until_ready(first)
    password = world.plane.kubectl(
        "get", "secret", "tiny-made", "-n", world.namespace, "-o", "jsonpath={.data.password}"
    )

    second = world.prepare("2.0.0", color="red")
    assert (second.action, second.from_revision, second.back_to) == ("upgrade", 1, 1)
    assert shown(second) == {
        ("ConfigMap", "tiny-later"): "created",
        ("ConfigMap", "tiny-settings"): "changed",
        ("DaemonSet", "tiny-agent"): "changed",
    }
    settings = next(difference.diff for difference in second.objects if difference.name == "tiny-settings")
    assert "-  color: blue\n-  old: only in the first\n+  color: red" in settings
    daemon = next(difference.diff for difference in second.objects if difference.kind == "DaemonSet")
    assert "+        image: registry.example.org/agent:2.0.0" in daemon
    assert "-        - name: OLD" in daemon
    assert [note.title for note in second.notes if note.code == "restart"] == [
        f"DaemonSet {world.namespace}/tiny-agent restarts on 2 nodes"
    ]

    before = {difference.name: difference for difference in second.objects}
    world.carry_out(second)
    world.until_ready(second)
    assert world.data() == {"color": "red"}
    assert world.data("tiny-later") == {}
    assert before.keys() == {"tiny-later", "tiny-settings", "tiny-agent"}
    now_there = world.plane.kubectl(
        "get", "secret", "tiny-made", "-n", world.namespace, "-o", "jsonpath={.data.password}"
    )
    assert now_there == password, "what was generated once is looked up"
    assert world.prepare("2.0.0", color="red").action == "none"

    world.carry_out(second, "revert")
    world.until_ready(second, "revert")
    assert world.data() == {"color": "blue", "old": "only in the first"}
    assert world.data("tiny-later") is None
    assert world.carry_out(second, "revert") == ["tiny is back already."]


def test_what_a_person_changed_is_seen_and_put_right(world: World) -> None:
    first = world.prepare(color="blue")
    world.carry_out(first)
    world.until_ready(first)
    world.admin.patch("configmaps", "tiny-settings", {"data": {"color": "pink"}}, world.namespace)

    repair = world.prepare(color="blue")
    assert shown(repair) == {("ConfigMap", "tiny-settings"): "changed"}
    assert "-  color: pink\n+  color: blue" in repair.objects[0].diff
    assert [note.code for note in repair.notes] == ["takes"]
    assert "data.color is pink, held by" in repair.notes[0].detail

    world.carry_out(repair)
    assert world.data() == {"color": "blue", "old": "only in the first"}
    world.admin.patch("configmaps", "tiny-settings", {"data": {"color": "pink"}}, world.namespace)
    world.carry_out(repair, "revert")
    assert world.data() == {"color": "blue", "old": "only in the first"}


def test_a_release_left_pending_is_mended_when_it_is_ours(world: World) -> None:
    first = world.prepare(color="blue")
    world.carry_out(first)
    world.left_pending(first)
    assert world.statuses() == ["pending-upgrade"]

    lines = world.carry_out(first)

    assert "Revision 1 was left pending-upgrade; it is recorded as failed, and helm continues." in lines
    assert world.history().last.status == "deployed"
    world.until_ready(first)


def test_a_pending_release_of_somebody_else_is_left_alone(world: World) -> None:
    first = world.prepare(color="blue")
    world.carry_out(first)
    second = world.prepare("2.0.0", color="red")
    world.left_pending(first)
    with pytest.raises(ReleaseBusy, match="another helm works on it"):
        world.carry_out(replace(second, from_revision=0))
    assert world.statuses() == ["pending-upgrade"]


def test_a_release_that_somebody_else_upgraded_meanwhile_is_not_overwritten(world: World) -> None:
    first = world.prepare(color="blue")
    world.carry_out(first)
    second = world.prepare("2.0.0", color="red")
    by_hand(world, "green")
    with pytest.raises(HelmRefused, match="another party made revision 2 of tiny since the plan saw revision 1"):
        world.carry_out(second)
    with pytest.raises(HelmRefused, match="it is left alone"):
        world.carry_out(first, "revert")
    assert world.data()["color"] == "green"


def test_a_release_made_by_hand_is_adopted_with_its_values(world: World) -> None:
    world.plane.kubectl("create", "namespace", world.namespace)
    by_hand(world, "blue", given="kept", verb="install")
    adopted = world.prepare("2.0.0")
    assert adopted.action == "adopt"
    assert adopted.values == adopted.kept == {"color": "blue", "given": "kept"}
    assert ("Secret", "tiny-made") not in shown(adopted)
    world.carry_out(adopted)
    world.until_ready(adopted)
    assert world.data() == {"color": "blue"}
    assert world.prepare("2.0.0").action == "none", "what was taken over is this cluster's own values now"
    assert world.prepare("2.0.0", color="red").values == {"color": "blue", "given": "kept"}
    world.carry_out(adopted, "revert")
    world.until_ready(adopted, "revert")
    assert world.data() == {"color": "blue", "old": "only in the first"}


def test_what_renders_otherwise_than_approved_is_not_installed(world: World) -> None:
    prepared = replace(world.prepare(color="blue"), manifest_digest="sha256:" + "0" * 64)
    with pytest.raises(HelmRefused, match="does not render to what was approved"):
        world.carry_out(prepared)
    assert world.statuses() == []


def test_a_secret_is_resolved_when_helm_runs_and_shown_nowhere(world: World) -> None:
    world.plane.kubectl("create", "namespace", world.namespace)
    reference = {"$secret": {"name": "mine", "key": "word"}}
    assert [note.code for note in world.prepare(given=reference).notes if note.severity == "block"] == [
        "secret-missing"
    ]
    world.plane.kubectl("create", "secret", "generic", "mine", "-n", world.namespace, "--from-literal=word=hunter2222")

    prepared = world.prepare(given=reference)
    lines = world.carry_out(prepared)

    hidden = (base64.b64encode(b"hunter2222").decode(), "hunter2222")
    assert not any(text in str((prepared.to_json(), lines)) for text in hidden)
    data = world.plane.kubectl("get", "secret", "tiny-made", "-n", world.namespace, "-o", "jsonpath={.data.given}")
    assert data == hidden[0]
    assert world.prepare(given=reference).action == "none"


def test_stopped_and_out_of_time_it_ends_and_goes_on_later(world: World) -> None:
    prepared = world.prepare(color="blue")
    with pytest.raises(HelmTimeout):
        world.carry_out(prepared, seconds=0)
    with pytest.raises(Stopped):
        world.carry_out(prepared, stop=lambda: True)
    world.carry_out(prepared)
    world.until_ready(prepared)
    assert world.history().last.status == "deployed"


@pytest.mark.parametrize("before", ["", "1.0.0"], ids=["install", "upgrade"])
def test_helm_killed_half_way_leaves_a_pending_release_which_the_next_try_mends(
    world: World, before: str, monkeypatch: pytest.MonkeyPatch, a_node: Callable[..., dict[str, Any]]
) -> None:
    if before:
        world.carry_out(world.prepare(before))
    prepared = world.prepare("3.0.0")
    world.until_killed(prepared, monkeypatch)
    assert world.history().last.status == ("pending-upgrade" if before else "pending-install")
    assert not world.data() or before

    a_node(labels={"hooks": world.namespace})
    lines = world.carry_out(prepared)
    assert any("was left pending" in line for line in lines)
    world.until_ready(prepared)
    assert world.history().last.status == "deployed"
    world.carry_out(prepared, "revert")
    world.until_ready(prepared, "revert")
    assert (world.data() or {}).get("old") == ("only in the first" if before else None)


def test_setpoints_own_identity_installs_with_the_manifest_for_it_and_says_so_without(
    world: World, deployed: Plane, cluster_admin: Admin
) -> None:
    """The controller plans and tries; only helm's own identity installs; neither makes a node (law 9)."""
    token = deployed.credentials(token=cluster_admin.controller_token())
    reached_with(world.cluster, token)
    with pytest.raises(Forbidden, match=r"apply deploy/setpoint-components\.yaml"):
        world.prepare()
    deployed.kubectl("apply", "-f", str(COMPONENTS))
    try:
        for account in (names.CONTROLLER_SERVICE_ACCOUNT, names.HELM_SERVICE_ACCOUNT):
            eventually(lambda who=account: _refusal_of_a_node(deployed, who) != "")
        blocked = world.prepare(color="blue")
        assert "helm-credential" in {note.code for note in blocked.notes if note.severity == "block"}
        with pytest.raises(HelmRefused, match="dry run only"):
            world.carry_out(blocked)
        issuer = cluster_admin.token(names.HELM_ISSUER_SERVICE_ACCOUNT)
        helm_credentials.store(world.cluster, issuer, by="a test")
        prepared = world.prepare(color="blue")
        assert [note for note in prepared.notes if note.severity == "block"] == []
        world.carry_out(prepared)
        world.until_ready(prepared)
        world.carry_out(prepared, "revert")
        world.until_ready(prepared, "revert")
    finally:
        deployed.kubectl("delete", "-f", str(COMPONENTS))


def test_a_plan_names_the_account_that_was_made_a_cluster_administrator(world: World, deployed: Plane) -> None:
    who = f"--serviceaccount={names.NAMESPACE}:{names.HELM_SERVICE_ACCOUNT}"
    before = world.prepare()
    deployed.kubectl("create", "clusterrolebinding", "for-an-hour", "--clusterrole=cluster-admin", who)
    try:
        prepared = world.prepare()
    finally:
        deployed.kubectl("delete", "clusterrolebinding", "for-an-hour")
    notes = [note for note in prepared.notes if note.code == "cluster-admin"]
    assert "for-an-hour" in notes[0].title
    assert names.HELM_SERVICE_ACCOUNT in notes[0].title
    assert replace(prepared, notes=before.notes).digest != prepared.digest, "it is part of what is approved"


def _refusal_of_a_node(plane: Plane, account: str) -> str:
    """Return the API server's refusal when Setpoint creates a node; empty if it may."""
    node = "{apiVersion: v1, kind: Node, metadata: {name: made-by-setpoint}}"
    who = f"--as=system:serviceaccount:{names.NAMESPACE}:{account}"
    try:
        plane.kubectl("create", "--dry-run=server", who, "-f", "-", text=node)
    except RuntimeError as error:
        return str(error)
    return ""


def test_discovery_knows_every_kind_and_its_path(world: World) -> None:
    with registry.api_server(world.cluster) as server:
        served = discovery.read(server)
    daemon = served.find("apps/v1", "DaemonSet")
    assert daemon
    assert daemon.path("space", "name") == "/apis/apps/v1/namespaces/space/daemonsets/name"
    role = served.find("rbac.authorization.k8s.io/v1", "ClusterRole")
    assert role
    assert role.path("", "system:node") == "/apis/rbac.authorization.k8s.io/v1/clusterroles/system:node"
    assert {"apps/v1", "apps/v1/DaemonSet", "v1"} <= set(served.api_versions)
    with pytest.raises(FleetError):
        role.path("", "../x")


def test_an_api_server_with_another_certificate_is_not_spoken_to(world: World) -> None:
    wrong = Credentials(server=world.plane.url, ca=registry.credentials(ClusterFactory()).ca, token="t")
    reached_with(world.cluster, wrong)
    with pytest.raises(FleetError):
        world.prepare()
