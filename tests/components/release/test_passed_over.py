"""What helm left undone although it ended well, as helm v4 does beside an API server that has just started."""

from __future__ import annotations

import pytest

from clusters.connection import registry
from clusters.fleet import Untrusted
from clusters.kube import discovery
from components.helm.client import Helm
from components.helm.errors import HelmUnavailable
from components.release import passed_over
from simfleet.apiserver.callers import person
from tests.components.release.test_removing import installed, removal
from tests.components.release.test_work import version_of, world

__all__ = ["world"]
pytestmark = pytest.mark.django_db
KINDS = ("priorityclasses", "validatingwebhookconfigurations")
HELM = person("helm")


@pytest.mark.parametrize("is_tried_again", [True, False])
def test_what_helm_left_of_a_release_that_it_removed_is_deleted(world, monkeypatch, is_tried_again):
    installed(world, "volcano")
    prepared = removal(world, "volcano")
    uninstall = Helm.uninstall

    def leaves(program, job, **how):
        with world.site.sim.lock:
            left = [(kind, one.copy()) for kind in KINDS for one in world.site.sim.store.all(kind)]
        uninstall(program, job, **how)
        with world.site.sim.lock:
            for kind, raw in left:
                raw["metadata"] = {
                    key: raw["metadata"][key] for key in ("name", "labels", "annotations") if key in raw["metadata"]
                }
                world.site.sim.api.create(HELM, kind, raw)
        if is_tried_again:
            raise HelmUnavailable("killed")

    monkeypatch.setattr(Helm, "uninstall", leaves)
    if is_tried_again:
        with pytest.raises(HelmUnavailable):
            world.carry_out(prepared)
        assert not world.look(prepared).is_ready
    world.carry_out(prepared)
    world.until_ready(prepared)


@pytest.mark.parametrize("is_tried_again", [True, False])
@pytest.mark.parametrize("verb", ["install", "upgrade", "rollback"])
def test_what_helm_did_not_make_is_made_as_it_recorded_it(world, monkeypatch, verb, is_tried_again):
    direction = "revert" if verb == "rollback" else "forward"
    if verb != "install":
        installed(world, "volcano")
    prepared = world.prepare("volcano", version_of("volcano"), custom={"scheduler_replicas": 2})
    if verb == "rollback":
        world.carry_out(prepared)
    helm, died = getattr(Helm, verb), []

    def passes_over(program, job, *given, **how):
        helm(program, job, *given, **how)
        with world.site.sim.lock:
            for kind in KINDS:
                for one in world.site.sim.store.all(kind):
                    world.site.sim.api.delete(HELM, kind, one.raw["metadata"]["name"])
        if is_tried_again and not died:
            died.append(verb)
            raise HelmUnavailable("killed")

    monkeypatch.setattr(Helm, verb, passes_over)
    if is_tried_again:
        with pytest.raises(HelmUnavailable):
            world.carry_out(prepared, direction)
    told = world.carry_out(prepared, direction)
    assert sum("passed over" in line for line in told) == 2
    with world.site.sim.lock:
        there = [one.raw["metadata"] for kind in KINDS for one in world.site.sim.store.all(kind)]
    assert [meta["annotations"]["meta.helm.sh/release-name"] for meta in there] == ["volcano"] * 2
    world.until_ready(prepared, direction)


@pytest.fixture
def leaving(world, monkeypatch):
    """The removal of a component whose definitions go right after helm; how often discovery still lists them."""
    installed(world, "gpu-operator")
    prepared = removal(world, "gpu-operator")
    late = []
    with registry.api_server(world.cluster) as server:
        before = discovery.read(server)
    read, uninstall = discovery.read, Helm.uninstall

    def uninstalls(program, job, **how):
        uninstall(program, job, **how)
        with world.site.sim.lock:
            for one in world.site.sim.store.all("customresourcedefinitions"):
                if one.raw["spec"]["group"] == "nvidia.com":
                    world.site.sim.api.delete(HELM, "customresourcedefinitions", one.raw["metadata"]["name"])
        monkeypatch.setattr(discovery, "read", lambda server: before if late and late.pop() else read(server))

    monkeypatch.setattr(Helm, "uninstall", uninstalls)
    return prepared, late


def test_what_went_with_its_definition_is_gone(world, leaving):
    """Found by a test on a real API server: it answers with a page, not as one that knows of no such object."""
    prepared, late = leaving
    late += [True] * 3
    world.carry_out(prepared)
    assert not late


def test_a_page_from_something_else_does_not_read_as_gone(world, leaving, monkeypatch):
    monkeypatch.setattr(passed_over, "SECONDS", 0)
    prepared, late = leaving
    late += [True] * 3
    with pytest.raises(Untrusted):
        world.carry_out(prepared)
