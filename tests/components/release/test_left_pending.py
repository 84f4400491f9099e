"""A release whose newest revision helm left pending, through helm v3: whose it was decides what is done about it.

Found by a soak under helm v4: the API server was killed while helm waited for a hook. helm ended, and could not record
how. The step failed for good, and every later plan waited an hour for a helm that did not run any more.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from clusters.connection import registry
from components.helm import releases
from components.helm.client import Helm
from components.helm.errors import HelmRefused, HelmUnavailable, ReleaseBusy, translated
from components.release import revision_labels
from tests.components import records
from tests.components.release.test_work import World, version_of, world

__all__ = ["world"]
pytestmark = [pytest.mark.django_db, pytest.mark.one_database]  # helm and an API server
NAMESPACE, NAME = "volcano-system", "volcano"


def leave(world: World, status: str) -> None:
    with registry.api_server(world.cluster) as server:
        records.leave(server, NAMESPACE, NAME, status)


def newest(world: World) -> releases.ReleaseRevision:
    with registry.api_server(world.cluster) as server:
        last = releases.history(server, NAMESPACE, NAME).last
    assert last is not None
    return last


@pytest.fixture
def upgraded(world):
    """A plan that upgraded, whose revert is revision 3; and the version."""
    version = version_of(NAME)
    world.carry_out(world.prepare(NAME, version))
    prepared = world.prepare(NAME, version, custom={"scheduler_replicas": 2})
    world.carry_out(prepared)
    return prepared, version


def test_what_helm_ended_with_is_no_verdict_while_its_rollback_is_pending(world, upgraded, monkeypatch):
    """Found by a soak: helm v3 failed beside an API server that had just started, and could not record it."""
    prepared, _ = upgraded
    rollback = Helm.rollback

    def cut_off(self, *arguments, **options):
        rollback(self, *arguments, **options)
        leave(world, "pending-rollback")
        raise HelmRefused("unable to build kubernetes objects from current release manifest")

    with monkeypatch.context() as patch:
        patch.setattr(Helm, "rollback", cut_off)
        with pytest.raises(HelmUnavailable):
            world.carry_out(prepared, "revert")
    world.carry_out(prepared, "revert")
    world.until_ready(prepared, "revert")


@pytest.mark.parametrize("is_seen", [True, False])
def test_a_plan_continues_over_a_rollback_that_an_earlier_plan_left_pending_if_it_saw_it(world, upgraded, is_seen):
    prepared, version = upgraded
    world.carry_out(prepared, "revert")
    later = None if is_seen else world.prepare(NAME, version, custom={"scheduler_replicas": 3})
    leave(world, "pending-rollback")
    if later is not None:
        with pytest.raises(ReleaseBusy):
            world.carry_out(replace(later, from_revision=2))
        assert newest(world).status == "pending-rollback"
        return
    later = world.prepare(NAME, version, custom={"scheduler_replicas": 3})
    assert later.from_revision == newest(world).number
    world.carry_out(later)
    world.until_ready(later)


def test_a_rollback_that_an_operator_left_pending_is_left_alone_by_a_plan_that_saw_it(world, upgraded):
    """Revision 3 has the announcement of revision 3 that was made on revision 2: helm copies labels."""
    _, version = upgraded
    with registry.api_server(world.cluster) as server:
        last = newest(world)
        releases.label(server, last, revision_labels.rollback_labels(last, last))
    world.site.helm.install(NAME, "--reuse-values", namespace=NAMESPACE)
    assert revision_labels.ROLLBACK in newest(world).labels
    world.site.helm("rollback", NAME, "2", f"--namespace={NAMESPACE}")
    assert newest(world).number == 4
    leave(world, "pending-rollback")
    later = world.prepare(NAME, version, custom={"scheduler_replicas": 4})
    with pytest.raises(ReleaseBusy):
        world.carry_out(later)
    assert newest(world).status == "pending-rollback"


def test_a_plan_continues_over_a_pending_rollback_to_what_plain_helm_had_installed(world):
    """The revert of an adoption: neither it nor what it goes back to has the label of a plan, only its announcement."""
    version = version_of(NAME)
    world.site.helm.install(NAME, f"--namespace={NAMESPACE}", "--create-namespace")
    adopted = world.prepare(NAME, version, custom={"scheduler_replicas": 2})
    assert adopted.action == "adopt"
    world.carry_out(adopted)
    world.carry_out(adopted, "revert")
    leave(world, "pending-rollback")
    later = world.prepare(NAME, version, custom={"scheduler_replicas": 3})
    assert "pending" not in [note.code for note in later.notes]

    lines = world.carry_out(later)
    assert "Revision 3 was left pending-rollback; it is recorded as failed, and helm continues." in lines
    world.until_ready(later)


@pytest.mark.parametrize("status", ["pending-install", "pending-upgrade"])
def test_a_plan_continues_over_what_an_earlier_plan_left_pending(world, status):
    version = version_of(NAME)
    world.carry_out(world.prepare(NAME, version))
    leave(world, status)
    later = world.prepare(NAME, version, custom={"scheduler_replicas": 2})
    assert "pending" not in [note.code for note in later.notes]

    lines = world.carry_out(later)
    assert f"Revision 1 was left {status}; it is recorded as failed, and helm continues." in lines
    world.until_ready(later)


def test_a_revision_of_another_plan_that_this_plan_did_not_see_is_left_alone(world):
    """Another installation of this product may be working on it right now."""
    version = version_of(NAME)
    world.carry_out(world.prepare(NAME, version))
    later = world.prepare(NAME, version, custom={"scheduler_replicas": 2})
    leave(world, "pending-upgrade")
    with pytest.raises(ReleaseBusy):
        world.carry_out(replace(later, from_revision=0))
    assert newest(world).status == "pending-upgrade"


def test_what_helm_ended_with_is_no_verdict_while_its_revision_is_pending(world, monkeypatch):
    prepared = world.prepare(NAME, version_of(NAME))
    install = Helm.install

    def cut_off(self, *arguments, **options):
        install(self, *arguments, **options)
        leave(world, "pending-install")
        raise HelmRefused("failed pre-install: the hook is not ready")

    with monkeypatch.context() as patch:
        patch.setattr(Helm, "install", cut_off)
        with pytest.raises(HelmUnavailable) as caught:
            world.carry_out(prepared)
    assert not caught.value.is_final
    assert "the hook is not ready" in str(caught.value)

    world.carry_out(prepared)
    world.until_ready(prepared)


def test_what_helm_recorded_as_failed_is_a_verdict(world, monkeypatch):
    prepared = world.prepare(NAME, version_of(NAME))
    install = Helm.install

    def refused(self, *arguments, **options):
        install(self, *arguments, **options)
        leave(world, "failed")
        raise HelmRefused("failed pre-install: the hook is not ready")

    monkeypatch.setattr(Helm, "install", refused)
    with pytest.raises(HelmRefused):
        world.carry_out(prepared)


def test_an_api_server_that_does_not_say_what_it_serves_is_away():
    """helm v3 words it so when discovery was forbidden by an API server that had just started."""
    output = 'Error: unable to build kubernetes objects from current release manifest: unable to recognize "": '
    assert isinstance(translated(f"{output}unknown", 1), HelmUnavailable)
    assert isinstance(translated(f'{output}no matches for kind "A" in version "b/v1"', 1), HelmRefused)


def test_a_watch_that_broke_says_nothing_of_what_it_watched():
    output = (
        "Error: INSTALLATION FAILED: failed pre-install: resource Job/a/b not ready. status: {}, message: {}"
        "\ncontext {}"
    )
    assert isinstance(translated(output.format("Unknown", "", "ended"), 1), HelmUnavailable)
    assert isinstance(translated(output.format("Failed", "BackoffLimitExceeded", "ended"), 1), HelmRefused)
