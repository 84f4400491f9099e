"""kube-proxy removed as a step of Cilium's replacement, and put back before it, through helm v3 and a simulated fleet.

On a real API server: tests/full/components/test_kube_proxy.py.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from clusters.connection import registry
from clusters.kube.apiserver import ApiServer
from clusters.models import Node
from components.helm.errors import HelmRefused, HelmWaits
from components.plans.prepared import PlanNote, Prepared
from components.release import conformance, work
from profiles.content.cluster import WantedComponent
from tests.components.release import proxies
from tests.components.release.test_work import World, version_of, world

__all__ = ["world"]
pytestmark = [pytest.mark.django_db, pytest.mark.one_database]  # helm and an API server
ADDRESS = {"k8sServiceHost": "192.0.2.1", "k8sServicePort": 6443}
REPLACED, REMOVED = "kube-proxy-replacement", "remove-kube-proxy"
BOTH = ["daemonsets", "configmaps"]


def wish(*presets: str, **values: Any) -> WantedComponent:
    return WantedComponent("cilium", version_of("cilium"), presets=presets, values={**ADDRESS, **values})


def plan(world: World, *presets: str, **values: Any) -> Prepared:
    made = work.prepare(world.cluster, wish(*presets, **values))
    return Prepared.from_json(made.to_json())


def proxy_notes(prepared: Prepared) -> list[tuple[str, str]]:
    return [(note.severity, note.title) for note in prepared.notes if note.code == "kube-proxy"]


@contextmanager
def api(world: World) -> Iterator[ApiServer]:
    with registry.api_server(world.cluster) as server:
        yield server


def install(world: World, *bodies: dict[str, Any]) -> None:
    with api(world) as server:
        proxies.install(server, *bodies)


def seen(world: World) -> dict[str, Any]:
    with api(world) as server:
        return {plural: proxies.meaning(proxies.there(server, plural)) for plural in BOTH}


def finished(world: World, prepared: Prepared, direction: str = "forward") -> list[str]:
    """Carry out as the engine does: again and again while it waits, then look until it is ready."""
    lines: list[str] = []
    until = time.monotonic() + 40
    while time.monotonic() < until:
        try:
            lines += world.carry_out(prepared, direction)
        except HelmWaits as waits:
            lines.append(f"waits: {waits}")
            time.sleep(0.1)
        else:
            world.until_ready(prepared, direction)
            return lines
    raise AssertionError(lines[-1])


def test_it_goes_after_cilium_is_ready_and_is_back_before_cilium_goes(world):
    install(world)
    before = seen(world)
    prepared = plan(world, REPLACED, REMOVED)
    assert [note for note in prepared.notes if note.severity == "block"] == []
    assert {
        (difference.change, difference.kind, difference.name)
        for difference in prepared.objects
        if difference.name == "kube-proxy"
    } == {
        ("deleted", "DaemonSet", "kube-proxy"),
        ("deleted", "ConfigMap", "kube-proxy"),
    }
    assert prepared.blast is not None
    assert "DaemonSet kube-system/kube-proxy" in prepared.blast.deleted

    with pytest.raises(HelmWaits, match="DaemonSet kube-system/kube-proxy stays until Cilium is ready: "):
        world.carry_out(prepared)
    assert seen(world) == before, "Cilium has not said that it is ready"
    lines = finished(world, prepared)
    assert seen(world) == dict.fromkeys(BOTH)
    assert "DaemonSet kube-system/kube-proxy is removed; the plan keeps it, and a revert puts it back." in lines
    assert world.carry_out(prepared) == ["cilium is installed already."], "twice is as once"
    assert plan(world, REPLACED, REMOVED).action == "none"

    steps: list[str] = []
    with watched(lambda method, path: steps.append(f"{method} {path}")):
        lines = finished(world, prepared, "revert")
    assert seen(world) == before
    assert world.site.helm("list", "--all-namespaces", "--short") == ""
    assert any(step.startswith("waits: cilium stays until DaemonSet kube-system/kube-proxy does") for step in lines)
    assert "POST" in steps[0], "the first write of a revert"
    assert "configmaps" in steps[0], "what its pods mount comes first"


def test_the_class_is_that_of_the_network_on_all_nodes_also_where_only_kube_proxy_goes(world):
    finished(world, plan(world, REPLACED, rollOutCiliumPods=True))
    install(world)
    for name in ("n1", "n2"):
        Node.objects.create(cluster=world.cluster, uid=name, name=name)
    prepared = plan(world, REPLACED, REMOVED)
    assert prepared.action == "upgrade"
    assert prepared.blast is not None
    [hit] = [hit for hit in prepared.blast.hits if hit.what == "DaemonSet kube-system/kube-proxy"]
    assert (prepared.blast.worst, hit.change, hit.worst, hit.nodes) == ("network", "deleted", "network", ("n1", "n2"))


def test_nothing_is_removed_that_no_profile_names(world):
    install(world)
    before = seen(world)
    prepared = plan(world, REPLACED)
    assert proxy_notes(prepared) == [("warn", "kube-proxy runs beside Cilium, which does its work")]
    assert prepared.replaced == ()
    finished(world, prepared)
    assert seen(world) == before
    assert proxy_notes(plan(world)) == [], "and nobody speaks of it where Cilium leaves Services to it"


def test_what_approvers_see_of_it_is_in_the_digest(world):
    install(world)
    first = plan(world, REPLACED, REMOVED)
    assert first.to_json()["replaced"][0]["original"]["spec"]["template"]["spec"]["hostNetwork"] is True
    with api(world) as server:
        proxies.change(server, "daemonsets", {"metadata": {"labels": {"mine": "yes"}}})
    assert plan(world, REPLACED, REMOVED).digest != first.digest
    assert "replaced" not in plan(world).to_json(), "digests of plans without it are what they were"


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (lambda server: proxies.change(server, "daemonsets", {"spec": {"minReadySeconds": 5}}), "was changed since"),
        (
            lambda server: proxies.change(server, "daemonsets", {"metadata": {"labels": {"x": "y"}}}),
            "was changed since",
        ),
        (lambda server: proxies.change(server, "configmaps", {"data": {"config.conf": "mode: ipvs"}}), "was changed"),
        (lambda server: proxies.remove(server, "daemonsets"), "was removed since the plan"),
        (
            lambda server: proxies.replace(server, proxies.daemonset()),
            "was made again by another party since the plan",
        ),
    ],
)
def test_what_another_party_did_to_it_since_the_plan_stops_the_plan_before_helm(world, edit, words):
    install(world)
    prepared = plan(world, REPLACED, REMOVED)
    with api(world) as server:
        edit(server)
    after = seen(world)
    with pytest.raises(HelmRefused, match=f"kube-system/kube-proxy {words}.*plan again"):
        world.carry_out(prepared)
    assert seen(world) == after
    assert world.site.helm("list", "--all-namespaces", "--short") == "", "helm has not begun"


def test_what_another_party_changed_while_cilium_came_is_left_and_a_revert_leaves_it_too(world):
    install(world)
    prepared = plan(world, REPLACED, REMOVED)
    with pytest.raises(HelmWaits):
        world.carry_out(prepared)
    with api(world) as server:
        proxies.change(server, "configmaps", {"data": {"config.conf": "mode: nftables\n"}})
    after = seen(world)
    with pytest.raises(HelmRefused, match="ConfigMap kube-system/kube-proxy was changed since the plan"):
        finished(world, prepared)
    assert seen(world) == after, "not even the DaemonSet is gone: one of both is not what was approved"
    lines = finished(world, prepared, "revert")
    assert "ConfigMap kube-system/kube-proxy was made again by another party, and is left as it is." in lines
    assert seen(world) == after


def test_the_status_that_its_controller_writes_is_no_change(world):
    install(world)
    prepared = plan(world, REPLACED, REMOVED)
    world.site.until(lambda: world.site.status("daemonsets", "kube-proxy", "kube-system"), locked=False)
    finished(world, prepared)
    assert seen(world) == dict.fromkeys(BOTH)


# ── what forbids it ───────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("values", "title"),
    [
        ({"k8sServiceHost": ""}, "kube-proxy cannot go: k8sServiceHost is not set"),
        ({"rollOutCiliumPods": False}, "kube-proxy cannot go: rollOutCiliumPods is not set"),
        (
            {"kubeProxyReplacement": "false"},
            "kube-proxy cannot go: Cilium does not do its work with these values",
        ),
        (
            {"k8sServiceHost": "kubernetes.default.svc"},
            "kube-proxy cannot go: k8sServiceHost kubernetes.default.svc is the Service that kube-proxy makes",
        ),
    ],
)
def test_values_with_which_the_cluster_would_lose_its_way_block_the_plan(world, values, title):
    install(world)
    assert ("block", title) in proxy_notes(plan(world, REPLACED, REMOVED, **values))


def test_a_boolean_means_what_its_text_means(world):
    install(world)
    assert [severity for severity, _ in proxy_notes(plan(world, REPLACED, REMOVED, kubeProxyReplacement=True))] == [
        "warn"
    ]


@pytest.mark.parametrize(
    ("meta", "who", "what"),
    [
        ({"labels": {"eks.amazonaws.com/component": "kube-proxy"}}, "EKS", "aws eks delete-addon"),
        ({"labels": {"kubernetes.azure.com/managedby": "aks"}}, "AKS", "az aks update --kube-proxy-config"),
        ({"labels": {"addonmanager.kubernetes.io/mode": "Reconcile"}}, "the cluster's add-on manager", "Dataplane V2"),
        (
            {"annotations": {"argocd.argoproj.io/tracking-id": "proxy:apps/DaemonSet:kube-system/kube-proxy"}},
            "Argo CD",
            "Remove it there",
        ),
    ],
)
def test_a_kube_proxy_that_somebody_keeps_is_refused_with_what_to_do_there(world, meta, who, what):
    install(world, proxies.daemonset(**meta))
    prepared = plan(world, REPLACED, REMOVED)
    [note] = [note for note in prepared.notes if note.code == "kube-proxy"]
    assert note.severity == "block"
    assert note.title.startswith(f"kube-proxy is kept by {who}"), note
    assert what in note.detail
    assert prepared.replaced == ()


def test_a_credential_in_its_configuration_is_not_stored_in_a_plan(world):
    install(world, proxies.config("users:\n- user:\n    token: abcdefgh12345678\n"), proxies.daemonset())
    prepared = plan(world, REPLACED, REMOVED)
    assert [severity for severity, _ in proxy_notes(prepared)] == ["block"]
    assert "abcdefgh12345678" not in str(prepared.to_json())


@pytest.mark.parametrize(
    ("kubelet", "note"),
    [
        (
            "v1.33.1+k3s1",
            PlanNote(
                "warn",
                "kube-proxy",
                "k3s runs kube-proxy within its own process, where it cannot be seen",
                "Start every server with `--disable-kube-proxy`.",
            ),
        ),
        ("v1.33.1", PlanNote("info", "kube-proxy", "No kube-proxy is there, so none is removed")),
    ],
)
def test_where_there_is_no_daemonset_the_plan_says_what_that_means(world, kubelet, note):
    Node.objects.create(cluster=world.cluster, uid="n1", name="n1", kubelet=kubelet)
    prepared = plan(world, REPLACED, REMOVED)
    assert [note for note in prepared.notes if note.code == "kube-proxy"] == [note]


def test_static_pods_of_kube_proxy_are_named_and_not_touched(world):
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "kube-proxy-n1", "namespace": "kube-system"}}
    pod["metadata"] |= {"labels": {"component": "kube-proxy"}, "annotations": {"kubernetes.io/config.mirror": "1"}}
    pod["spec"] = {"nodeName": "n1", "containers": [{"name": "kube-proxy", "image": "x"}]}
    with api(world) as server:
        path = "/api/v1/namespaces/kube-system/pods"
        server.ask(proxies.Call("create", "pods", "kube-proxy-n1"), "POST", path, body=pod)
    assert proxy_notes(plan(world, REPLACED, REMOVED)) == [("block", "kube-proxy runs as a static pod on 1 node")]


def test_cilium_does_not_stop_its_work_where_nothing_else_does_it(world):
    install(world)
    finished(world, plan(world, REPLACED, REMOVED))
    title = "Cilium would no longer do kube-proxy's work, and no kube-proxy is seen"
    assert proxy_notes(plan(world)) == [("block", title)]
    install(world)
    assert proxy_notes(plan(world)) == []


# ── kept proving ──────────────────────────────────────────────────────────────────────────────────────────────────────
def test_one_that_comes_back_is_drift_and_a_plan_removes_it_again(world):
    install(world)
    finished(world, plan(world, REPLACED, REMOVED))
    wanted = wish(REPLACED, REMOVED)
    assert conformance.conform(world.cluster, wanted).state == "compliant"
    install(world)

    look = conformance.conform(world.cluster, wanted)
    assert look.state == "drifted"
    assert look.sentence == "DaemonSet kube-system/kube-proxy is there, and was to be removed."
    assert conformance.conform(world.cluster, wish(REPLACED)).differences[0].kind != "DaemonSet"
    repair = plan(world, REPLACED, REMOVED)
    assert (repair.action, [replaced_object.uid for replaced_object in repair.replaced] != []) == ("upgrade", True)
    finished(world, repair)
    assert seen(world) == dict.fromkeys(BOTH)
    assert conformance.conform(world.cluster, wanted).state == "compliant"

    finished(world, repair, "revert")
    assert None not in seen(world).values(), "as it was before that repair"


def test_one_that_is_made_again_while_the_step_looks_fails_the_step(world):
    install(world)
    prepared = plan(world, REPLACED, REMOVED)
    finished(world, prepared)
    install(world, proxies.daemonset())
    look = world.look(prepared)
    assert look.failed == "DaemonSet kube-system/kube-proxy was made again by another party since it was deleted."


# ── killed anywhere ───────────────────────────────────────────────────────────────────────────────────────────────────
class Killed(BaseException):
    """A worker that died between two calls."""


@contextmanager
def watched(look: Callable[[str, str], None], *, after: Callable[[], None] = lambda: None) -> Iterator[None]:
    """Every write of ours on kube-proxy: `look` before it is sent, `after` once it is answered."""
    sent = ApiServer._once

    def once(self: ApiServer, call: Any, method: str, path: str, **how: Any) -> Any:
        is_meant = method in ("POST", "DELETE") and (call.name == "kube-proxy")
        if is_meant:
            look(method, path)
        answer = sent(self, call, method, path, **how)
        if is_meant:
            after()
        return answer

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ApiServer, "_once", once)
        yield


def killed_at(world: World, prepared: Prepared, direction: str, moment: int) -> bool:
    """Carry out with a worker that dies before (even) or after (odd) its n-th write. Whether it died."""
    count = iter(range(1000))

    def die(*_: str) -> None:
        if next(count) == moment:
            raise Killed

    try:
        with watched(die, after=die):
            finished(world, prepared, direction)
    except Killed:
        return True
    return False


@pytest.mark.parametrize("direction", ["forward", "revert"])
def test_wherever_a_worker_dies_the_next_one_comes_to_the_same_end(world, direction):
    install(world)
    before = seen(world)
    prepared = plan(world, REPLACED, REMOVED)
    gone = dict.fromkeys(BOTH)
    for moment in range(4):
        if direction == "revert":
            finished(world, prepared)
        assert killed_at(world, prepared, direction, moment), f"no write at {moment}"
        finished(world, prepared, direction)
        assert seen(world) == (gone if direction == "forward" else before)
        if direction == "forward":
            finished(world, prepared, "revert")
        prepared = plan(world, REPLACED, REMOVED)


def test_a_write_of_another_client_between_look_and_deletion_is_seen(world):
    install(world)
    prepared = plan(world, REPLACED, REMOVED)
    with pytest.raises(HelmWaits):
        world.carry_out(prepared)
    edits = iter([True])

    def edit(method: str, path: str) -> None:
        if next(edits, False):
            with api(world) as server:
                proxies.change(server, "daemonsets", {"spec": {"minReadySeconds": 7}})

    with watched(edit), pytest.raises(HelmRefused, match="DaemonSet kube-system/kube-proxy was changed since the plan"):
        finished(world, prepared)
    assert None not in seen(world).values()
