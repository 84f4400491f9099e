"""Work that helm left undone although it succeeded, as helm v4 does beside an API server that has just started."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from clusters.connection import registry
from clusters.fleet import Untrusted
from clusters.kube import discovery
from components.helm import releases
from components.helm.client import Helm, HelmJob
from components.helm.errors import HelmError, HelmUnavailable
from components.plans.prepared import Prepared
from components.release import passed_over
from simfleet.apiserver.answers import ApiError
from simfleet.apiserver.callers import person
from simfleet.apiserver.handler import Handler
from tests.components.release.test_removing import installed, removal
from tests.components.release.test_work import World, version_of, world

__all__ = ["world"]
pytestmark = [pytest.mark.django_db, pytest.mark.one_database]  # helm and an API server
KINDS = ("priorityclasses", "validatingwebhookconfigurations")
WEBHOOK = "volcano-admission-service-queues-validate"
HELM = person("helm")


@pytest.mark.parametrize("is_tried_again", [True, False])
def test_what_helm_left_of_a_release_that_it_removed_is_deleted(world, monkeypatch, is_tried_again):
    installed(world, "volcano")
    prepared = removal(world, "volcano")
    monkeypatch.setattr(Helm, "uninstall", leaving_some(world, is_killed=is_tried_again))
    if is_tried_again:
        with pytest.raises(HelmUnavailable):
            world.carry_out(prepared)
        assert not world.look(prepared).is_ready
    world.carry_out(prepared)
    world.until_ready(prepared)


def test_what_helm_left_of_a_first_install_is_deleted_though_its_record_is_gone(world, monkeypatch):
    """The worker died after helm had removed the record, and before anything was looked at."""
    prepared = world.prepare("volcano", version_of("volcano"))
    world.carry_out(prepared)
    with monkeypatch.context() as patch:
        patch.setattr(Helm, "uninstall", leaving_some(world, is_killed=True))
        with pytest.raises(HelmUnavailable):
            world.carry_out(prepared, "revert")
    assert world.site.helm("list", "--all-namespaces", "--all", "--short") == ""
    lines = world.carry_out(prepared, "revert")
    assert sum("passed over by helm, and is deleted" in line for line in lines) == 2
    assert [names(world, kind) for kind in KINDS] == [[], []]
    world.until_ready(prepared, "revert")


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
                for stored in world.site.sim.store.all(kind):
                    world.site.sim.api.delete(HELM, kind, stored.raw["metadata"]["name"])
        if is_tried_again and not died:
            died.append(verb)
            raise HelmUnavailable("killed")

    monkeypatch.setattr(Helm, verb, passes_over)
    if is_tried_again:
        with pytest.raises(HelmUnavailable):
            world.carry_out(prepared, direction)
    lines = world.carry_out(prepared, direction)
    assert sum("passed over" in line for line in lines) == 2
    with world.site.sim.lock:
        there = [stored.raw["metadata"] for kind in KINDS for stored in world.site.sim.store.all(kind)]
    assert [meta["annotations"]["meta.helm.sh/release-name"] for meta in there] == ["volcano"] * 2
    world.until_ready(prepared, direction)


@pytest.mark.parametrize("verb", ["GET", "DELETE"])
@pytest.mark.parametrize("is_back", [False, True])
def test_what_helm_did_not_delete_in_an_upgrade_or_a_rollback_is_deleted(world, monkeypatch, verb, is_back):
    """Both helms end well where they may not read what the new manifest lacks; v3 also where it may not delete it."""
    prepared = without_webhook(world, is_back=is_back)
    others = forbidden(monkeypatch, verb, WEBHOOK)
    direction = "revert" if is_back else "forward"
    lines = world.carry_out(prepared, direction)
    assert others, "helm asked for it and was refused"
    assert any("passed over by helm, and is deleted" in line for line in lines)
    assert names(world, "validatingwebhookconfigurations") == []
    world.until_ready(prepared, direction)


@pytest.mark.parametrize("marks", [{"helm.sh/resource-policy": "keep"}, {"meta.helm.sh/release-name": "other"}])
def test_what_is_to_be_kept_or_of_another_release_is_left(world, monkeypatch, marks):
    prepared = without_webhook(world, is_back=False)
    with world.site.sim.lock:
        change = {"metadata": {"annotations": marks}}
        world.site.sim.api.patch(HELM, "validatingwebhookconfigurations", WEBHOOK, change)
    assert forbidden(monkeypatch, "GET", WEBHOOK) == []
    world.carry_out(prepared)
    assert names(world, "validatingwebhookconfigurations") == [WEBHOOK]


def test_what_the_release_records_again_is_left(world):
    """A later revision may want what the plan dropped."""
    prepared = without_webhook(world, is_back=False)
    world.carry_out(prepared)
    world.carry_out(world.prepare("volcano", version_of("volcano")))
    lines: list[str] = []
    with registry.api_server(world.cluster) as server:
        release = releases.history(server, "volcano-system", "volcano").last.read()
        job = HelmJob("volcano", "volcano-system", world.site.credentials, 0.0, lambda: False, lines.append)
        passed_over.delete_dropped(server, job, release, prepared.objects)
    assert names(world, "validatingwebhookconfigurations") == [WEBHOOK]
    assert lines == []


@pytest.mark.parametrize("verb", ["GET", "PATCH"])
@pytest.mark.parametrize("is_back", [False, True])
def test_helm_fails_where_it_may_not_read_or_change_what_it_upgrades(world, monkeypatch, verb, is_back):
    """An upgrade therefore passes over no existing object: none has to be compared afterwards for its content."""
    installed(world, "volcano")
    prepared = world.prepare("volcano", version_of("volcano"), custom={"scheduler_replicas": 2})
    if is_back:
        world.carry_out(prepared)
    forbidden(monkeypatch, verb, "volcano-scheduler")
    with pytest.raises(HelmError):
        world.carry_out(prepared, "revert" if is_back else "forward")


def without_webhook(world: World, *, is_back: bool) -> Prepared:
    """A plan that drops the webhook; `is_back`: one that brought it, carried out, so that its revert drops it."""
    off = {"custom": {"enabled_admissions": "/jobs/mutate"}}
    world.carry_out(world.prepare("volcano", version_of("volcano"), **(off if is_back else {})))
    prepared = world.prepare("volcano", version_of("volcano"), **({} if is_back else off))
    assert ("created" if is_back else "deleted", WEBHOOK) in [
        (difference.change, difference.name) for difference in prepared.objects
    ]
    if is_back:
        world.carry_out(prepared)
    return prepared


def forbidden(monkeypatch: pytest.MonkeyPatch, verb: str, name: str) -> list[str]:
    """Forbid helm to `verb` the object of this name from now on; no other caller is affected.

    Returns the list of what was refused.
    """
    answer, refused = Handler._answer, []

    def judged(self, method, caller, at, query, sent):
        if "helm" in (self.headers.get("User-Agent") or "").lower() and (method, at.name) == (verb, name):
            refused.append(method)
            raise ApiError(403, "Forbidden", f'{at.plural} "{name}" is forbidden: User cannot {method.lower()} it')
        return answer(self, method, caller, at, query, sent)

    monkeypatch.setattr(Handler, "_answer", judged)
    return refused


def leaving_some(world: World, *, is_killed: bool) -> Callable[..., None]:
    """helm's removal, after which objects of KINDS are there as before."""
    uninstall = Helm.uninstall

    def leaves(program, job, **how):
        with world.site.sim.lock:
            left = [(kind, stored.copy()) for kind in KINDS for stored in world.site.sim.store.all(kind)]
        uninstall(program, job, **how)
        with world.site.sim.lock:
            for kind, raw in left:
                meta = {
                    key: raw["metadata"][key] for key in ("name", "labels", "annotations") if key in raw["metadata"]
                }
                world.site.sim.api.create(HELM, kind, {**raw, "metadata": meta})
        if is_killed:
            raise HelmUnavailable("killed")

    return leaves


def names(world: World, kind: str) -> list[str]:
    with world.site.sim.lock:
        return [stored.raw["metadata"]["name"] for stored in world.site.sim.store.all(kind)]


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
            for definition in world.site.sim.store.all("customresourcedefinitions"):
                if definition.raw["spec"]["group"] == "nvidia.com":
                    world.site.sim.api.delete(HELM, "customresourcedefinitions", definition.raw["metadata"]["name"])
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
