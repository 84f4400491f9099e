"""A plan and the site's own catalog entry that it was made with: its authors, its class, and what makes it stale."""

from __future__ import annotations

from dataclasses import replace

import pytest

from common.errors import WrongState
from components.catalog import catalog, site_entries
from components.helm.errors import HelmRefused
from components.models import SiteEntry
from components.plans.prepared import Prepared
from components.release import approved_entry, work
from jobs.approvals import reviews
from jobs.models import Plan, PlanComponent
from jobs.planning import digests
from jobs.rollouts import rollout_actions
from tests.components.catalog.test_site_entries import text
from tests.factories import UserFactory
from tests.jobs.conftest import World
from tests.jobs.planning.test_authorship import as_approver, assert_kept_out
from tests.jobs.releases import Releases, altered, wanted


@pytest.fixture
def author(db):
    return UserFactory(roles=["admin"])


@pytest.fixture
def releases(monkeypatch) -> Releases:
    """The fake of helm, with the entry as the product puts it into what it prepares."""
    fake = Releases().install(monkeypatch)
    real = fake.prepare

    def prepare(cluster, component, peers=()):
        return replace(real(cluster, component, peers), **approved_entry.of(catalog.current().get(component.name)))

    monkeypatch.setattr(work, "prepare", prepare)
    return fake


def planned(world: World, author) -> tuple[Plan, SiteEntry]:
    row = site_entries.create(text(), by=author)
    return world.plan(world.revision({}, components=wanted("tool"))), row


def test_authors_of_an_entry_do_not_approve_a_plan_that_uses_it(world: World, author, releases):
    plan, _ = planned(world, author)
    plan = reviews.request(plan, by=world.operator)
    assert_kept_out(plan, as_approver(author), "you wrote the catalog entry tool")
    assert str(author.pk) in plan.authorship
    other = world.plan(world.revision({}, components=wanted("volcano")))
    assert str(author.pk) not in other.authorship


def test_a_plan_is_stale_once_its_entry_is_another_and_not_once_it_is_classified(world: World, author, releases):
    plan, row = planned(world, author)
    plan = reviews.request(plan, by=world.operator)
    part = Prepared.from_json(plan.components.get().prepared)
    assert (part.entry, part.is_untested) == (row.sha256, True)

    row = site_entries.classify(row, by=UserFactory(roles=["admin"]), version=1)
    assert digests.changed_entry(plan) == ""
    assert approved_entry.component(part).effects.install.worst == "live"

    site_entries.update(row, text("tool", ""), by=author, version=2)
    assert "The catalog entry of tool was changed since the plan was made" in digests.changed_entry(plan)
    with pytest.raises(WrongState, match="entry of tool was changed"):
        reviews.approve(plan, by=world.approver, digest=plan.digest)
    with pytest.raises(HelmRefused, match="entry of tool was changed"):
        approved_entry.component(part)


def test_an_approved_plan_does_not_start_with_another_entry(world: World, author, releases):
    plan, row = planned(world, author)
    reviews.request(plan, by=world.operator)
    reviews.approve(plan, by=world.approver, digest=plan.digest)
    plan = Plan.objects.get(pk=plan.pk)
    site_entries.update(row, text("tool", ""), by=author, version=1)
    with pytest.raises(WrongState, match="entry of tool was changed"):
        rollout_actions.start(plan, by=world.operator)


def test_an_entry_that_is_untested_again_makes_a_plan_of_its_classified_text_stale(world: World, author, releases):
    row = site_entries.create(text(), by=author)
    site_entries.classify(row, by=UserFactory(roles=["admin"]), version=1)
    plan = world.plan(world.revision({}, components=wanted("tool")))
    assert Prepared.from_json(plan.components.get().prepared).is_untested is False
    SiteEntry.objects.get(pk="tool").put_marked(classified_sha256="")
    assert "is not classified any more" in digests.changed_entry(plan)


def test_the_entry_is_of_what_the_digest_covers(world: World, author, releases):
    plan, _ = planned(world, author)
    part = plan.components.get()
    for other in ({"entry": "0" * 64}, {"is_untested": False}):
        PlanComponent.objects.filter(pk=part.pk).update(prepared=altered(part.prepared, **other))
        assert not digests.are_components_intact(plan)
    assert "entry" not in Prepared("volcano", "volcano", "volcano-system", "1.0.0").to_json()


def test_a_plan_whose_entry_changes_while_it_is_made_is_not_stored(world: World, author, releases, monkeypatch):
    row = site_entries.create(text(), by=author)
    real = work.prepare

    def prepare(*arguments):
        prepared = real(*arguments)
        site_entries.update(row, text("tool", ""), by=author, version=1)
        return prepared

    monkeypatch.setattr(work, "prepare", prepare)
    with pytest.raises(WrongState, match="entry of tool was changed while this plan was made"):
        world.plan(world.revision({}, components=wanted("tool")))
    assert not Plan.objects.exists()


def test_an_entry_is_not_deleted_while_a_plan_a_target_or_a_release_needs_it(world: World, author, releases):
    plan, row = planned(world, author)
    with pytest.raises(WrongState, match=f"P-{plan.number} is made with it"):
        site_entries.delete(row, by=author, version=1)
    rollout = world.run(world.started(plan))
    assert rollout.status == "succeeded"
    reasons = site_entries.needed_by(row)
    assert f"the target of {world.pool} has it" in reasons
    assert f"its release is in {world.cluster}" in reasons
    assert not any(f"P-{plan.number}" in reason for reason in reasons)
    site_entries.create(text("behind", "after: [tool]"), by=author)
    with pytest.raises(WrongState, match="the entry behind names it; its release is in"):
        site_entries.delete(row, by=author, version=1)
