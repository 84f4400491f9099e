"""Conflicts of a component with what the cluster has, through helm v3 and a simulated fleet: found in its plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from clusters.connection import registry
from clusters.fleet import Forbidden
from clusters.kube import paging
from clusters.kube.apiserver import Call
from components.catalog import catalog
from components.charts import archives
from components.helm import releases
from components.plans.prepared import PlanNote, Prepared
from components.release import work
from config.demo import packing
from profiles.content.cluster import WantedComponent
from tests.components.factories import ClusterValuesFactory
from tests.components.packing import entry, versioned
from tests.components.release.test_work import World
from tests.simfleet.site import Site

pytestmark = pytest.mark.django_db
DAEMONS = """\
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: {{ .Release.Name }}}
spec:
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec: {containers: [{name: main, image: registry.example.org/net}]}
"""
OVERLAY = """
conflicts:
  - with: underlay
    why: Both route the pods' traffic.
    workloads: {kind: DaemonSet, names: [underlay-*]}
    unless: {chained: true}
    unless_other: {exclusive: false}
    sources: [S]
  - title: Calico
    why: Both write the configuration of the only CNI.
    workloads: {kind: DaemonSet, names: [calico-node, overlay]}
    unless: {chained: true}
    sources: [S]
"""


@pytest.fixture
def world(tmp_path: Path, settings: Any):
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    folder = tmp_path / "catalog"
    folder.mkdir()
    for name, more in (("overlay", OVERLAY), ("underlay", "")):
        archives.store(versioned(name, "1.0.0", DAEMONS, "chained: false\nexclusive: true\n"), origin="uploaded")
        (folder / f"{name}.yaml").write_text(entry(name, "1.0.0", workload=f"DaemonSet/{name}", more=more))
    site = Site(tmp_path)
    for name in ("n1", "n2"):
        site.sim.add_node(name)
    with catalog.extended(folder):
        yield World(site)
    site.close()


def conflicts(prepared: Prepared) -> list[tuple[str, str]]:
    return [(note.severity, note.title) for note in prepared.notes if note.code == "component-conflict"]


def planned(world: World, name: str, *peers: WantedComponent, **values: Any) -> list[tuple[str, str]]:
    return conflicts(work.prepare(world.cluster, WantedComponent(name, "1.0.0", values=values), peers))


def daemonset(world: World, name: str, namespace: str, *, owner: bool = False, selector: str = "") -> None:
    """A DaemonSet as `kubectl apply` or an operator makes it; it runs on every node that the selector finds."""
    labels = {"app": name}
    meta: dict[str, Any] = {"name": name, "namespace": namespace}
    if owner:
        meta["ownerReferences"] = [{"apiVersion": "v1", "kind": "ConfigMap", "name": "policy", "uid": "1"}]
    pod: dict[str, Any] = {"containers": [{"name": "main", "image": "registry.example.org/net"}]}
    if selector:
        pod["nodeSelector"] = {selector: "true"}
    template = {"metadata": {"labels": labels}, "spec": pod}
    body = {"apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": meta}
    body |= {"spec": {"selector": {"matchLabels": labels}, "template": template}}
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}}
    with registry.api_server(world.cluster) as server:
        server.send(Call("create", "namespaces", namespace), "POST", "/api/v1/namespaces", body=space)
        path = f"/apis/apps/v1/namespaces/{namespace}/daemonsets"
        server.ask(Call("create", "daemonsets", name), "POST", path, body=body)
    if not selector:
        world.site.until(lambda: world.site.status("daemonsets", name, namespace), locked=False)


def install(world: World, name: str, **values: Any) -> None:
    world.carry_out(world.prepare(name, "1.0.0", **values))


BESIDE = ("block", "It conflicts with Calico: the cluster runs the DaemonSet kube-system/calico-node")
RELEASE = "the cluster has its release underlay-system/underlay"


def test_a_foreign_daemonset_blocks_the_plan_until_a_value_settles_it(world):
    assert planned(world, "overlay") == []
    daemonset(world, "calico-node", "kube-system")

    assert planned(world, "overlay") == [BESIDE]
    assert planned(world, "overlay", chained=True) == []
    assert planned(world, "underlay") == [], "it declares nothing"
    [note] = [note for note in world.prepare("overlay", "1.0.0").notes if note.code == "component-conflict"]
    detail = "Both write the configuration of the only CNI. To read: Its README (https://example.org)."
    assert note == PlanNote(*BESIDE[:1], note.code, BESIDE[1], detail)


def test_a_daemonset_without_a_node_to_run_on_is_no_conflict(world):
    """Clouds put one for each maker of GPUs into every cluster."""
    daemonset(world, "calico-node", "kube-system", selector="no-such-label")
    assert planned(world, "overlay") == []


@pytest.mark.parametrize(("name", "title"), [("calico-node", "Calico"), ("kube-flannel-ds", "flannel")])
def test_cilium_is_not_planned_as_the_only_network_beside_another(world, name, title):
    archive = archives.store(packing.pack(packing.CHARTS / "cilium"), origin="uploaded")
    given = {"k8sServiceHost": "10.0.0.1", "k8sServicePort": 6443}

    def planned_cilium(**more: Any) -> list[tuple[str, str]]:
        wanted = WantedComponent("cilium", archive.version, values=given | more)
        return conflicts(work.prepare(world.cluster, wanted))

    assert planned_cilium() == []
    daemonset(world, name, "kube-system")
    assert planned_cilium() == [
        ("block", f"It conflicts with {title}: the cluster runs the DaemonSet kube-system/{name}")
    ]
    wanted = WantedComponent("cilium", archive.version, values=given)
    [advice] = [note.detail for note in work.prepare(world.cluster, wanted).notes if note.code == "component-conflict"]
    assert "https://docs.cilium.io/en/stable/installation/k8s-install-migration" in advice
    assert planned_cilium(cni={"customConf": True}) == [], "a migration, or a chain"


def test_its_own_workloads_are_no_conflict_and_neither_is_what_its_operator_makes(world):
    install(world, "overlay")
    world.site.until(lambda: world.site.status("daemonsets", "overlay", "overlay-system"), locked=False)
    daemonset(world, "calico-node", "overlay-system", owner=True)
    assert planned(world, "overlay", other=1) == []
    daemonset(world, "calico-node", "elsewhere", owner=True)
    assert planned(world, "overlay", other=1) == [
        ("block", "It conflicts with Calico: the cluster runs the DaemonSet elsewhere/calico-node")
    ]


@pytest.mark.parametrize(("planned_one", "other"), [("overlay", "underlay"), ("underlay", "overlay")])
def test_a_release_of_the_other_is_found_whichever_file_declares_it(world, planned_one, other):
    install(world, other)
    [(severity, title)] = planned(world, planned_one)
    assert (severity, title) == (
        "block",
        f"It conflicts with {other}: the cluster has its release {other}-system/{other}",
    )


@pytest.mark.parametrize(("there", "given"), [({"exclusive": False}, {}), ({}, {"chained": True})])
def test_values_of_either_settle_it(world, there, given):
    install(world, "underlay", **there)
    assert planned(world, "overlay", **given) == []


def test_what_runs_besides_already_is_only_a_warning(world):
    install(world, "overlay")
    install(world, "underlay", exclusive=False)
    daemonset(world, "calico-node", "kube-system")
    assert planned(world, "overlay") == [("warn", BESIDE[1])]
    assert planned(world, "overlay", other=1) == [BESIDE], "a change of it may settle the conflict, or is refused"


def test_what_is_wanted_besides_counts_as_if_it_were_there(world):
    peer = WantedComponent("underlay", "1.0.0")
    title = "It conflicts with underlay: it is wanted in this cluster, too"
    assert planned(world, "overlay", peer) == [("block", title)]
    assert planned(world, "overlay", WantedComponent("underlay", values={"exclusive": False})) == []
    ClusterValuesFactory(cluster=world.cluster, component="underlay", values={"exclusive": False})
    assert planned(world, "overlay", peer) == []


def test_what_is_wanted_otherwise_counts_and_not_what_is_still_installed(world):
    install(world, "underlay")
    assert planned(world, "overlay", WantedComponent("underlay", values={"exclusive": False})) == []


def test_what_the_same_plan_removes_makes_room(world):
    install(world, "underlay")
    daemonset(world, "underlay-extra", "elsewhere")
    gone = WantedComponent("underlay", is_gone=True)
    assert len(planned(world, "overlay")) == 1, "the release is named, and its workloads not besides"
    assert planned(world, "overlay", gone) == []


def test_without_a_release_its_workloads_are_recognized(world):
    daemonset(world, "underlay-agent", "elsewhere")
    title = "It conflicts with underlay: the cluster runs the DaemonSet elsewhere/underlay-agent"
    assert planned(world, "overlay") == [("block", title)]


def test_a_record_that_cannot_be_read_hides_no_other(world, monkeypatch):
    install(world, "underlay")
    read = releases.ReleaseRevision.read
    whole = releases.newest

    def newest(server: Any) -> list[releases.ReleaseRevision]:
        broken = {"metadata": {"name": "x", "labels": {"name": "x", "version": "1", "status": "deployed"}}}
        return [releases.ReleaseRevision(broken), *whole(server)]

    with pytest.raises(releases.BadRecord):
        read(releases.ReleaseRevision({"metadata": {}}))
    monkeypatch.setattr(releases, "newest", newest)
    assert [title for _, title in planned(world, "overlay")] == [f"It conflicts with underlay: {RELEASE}"]


def test_workloads_that_may_not_be_listed_are_not_called_absent(world, monkeypatch):
    listed = paging.listed

    def refused(server: Any, call: Call, path: str, **how: Any) -> Any:
        if path == "/apis/apps/v1/daemonsets":
            raise Forbidden("daemonsets is forbidden")
        return listed(server, call, path, **how)

    monkeypatch.setattr(paging, "listed", refused)
    assert planned(world, "overlay") == [
        ("warn", f"It conflicts with {title}, and whether that runs cannot be seen") for title in ("underlay", "Calico")
    ]
