"""Authors of a part of what a plan brings do not approve it, and are told which part."""

from __future__ import annotations

import io

import pytest

from accounts.models import RoleBinding, User
from clusters.services import pools
from common.errors import NotAllowed
from components.charts import uploads
from components.models import ClusterValues
from jobs.approvals import reviews, verdicts
from jobs.models import Plan, PlanComponent
from jobs.planning import authorship, digests
from jobs.reports import selectors
from tests.components.factories import ClusterValuesFactory
from tests.components.packing import tiny
from tests.jobs.conftest import World, person


def as_approver(user: User) -> User:
    RoleBinding.objects.create(user=user, role="approver", scope="*")
    return User.objects.get(pk=user.pk)


def assert_kept_out(plan: Plan, user: User, what: str) -> None:
    plan = Plan.objects.get(pk=plan.pk)
    assert what in verdicts.reason_not_to_judge(plan, user)
    assert plan not in selectors.to_review(user)
    with pytest.raises(NotAllowed, match=what):
        reviews.approve(plan, by=user, digest=plan.digest)


def test_who_wrote_what_the_revision_extends_does_not_approve(world: World):
    """Two revisions deep: each inherits what the one above it wants."""
    writer, middle = as_approver(person("writer", role="operator")), as_approver(person("middle", role="operator"))
    base = world.revision({"vm.swappiness": "30"})
    base.authors.set([writer])
    between = world.revision({"vm.dirty_ratio": "10"})
    revision = world.revision({"vm.swappiness": "10"})
    between.authors.set([middle])
    type(base).objects.filter(pk=between.pk)._update([(type(base)._meta.get_field("extends"), None, base)])
    type(base).objects.filter(pk=revision.pk)._update([(type(base)._meta.get_field("extends"), None, between)])
    plan = reviews.request(world.plan(type(base).objects.get(pk=revision.pk)), by=world.operator)
    assert_kept_out(plan, writer, str(base))
    assert_kept_out(plan, middle, str(between))
    assert reviews.approve(plan, by=world.approver, digest=plan.digest).status == Plan.Status.APPROVED


def test_who_wrote_the_clusters_values_does_not_approve_even_if_they_were_cleared_since(world: World):
    writer = as_approver(person("writer", role="operator"))
    row = ClusterValuesFactory(cluster=world.cluster, component="cilium")
    ClusterValues.objects.filter(pk=row.pk).update(authors=[writer.pk])
    revision = world.revision({"vm.swappiness": "10"})
    authors = authorship.find_authors(world.pool, revision, [PlanComponent(component="cilium")])
    assert authors.get(str(writer.pk)) == "you wrote values of cilium in atlas"
    assert str(writer.pk) not in authorship.find_authors(world.pool, revision, [PlanComponent(component="kueue")])
    plan = world.plan(revision)
    Plan.objects.filter(pk=plan.pk).update(authorship=authors)
    ClusterValues.objects.all().delete()
    plan.refresh_from_db()
    assert "cilium" in verdicts.reason_not_to_judge(plan, writer)


def test_who_uploaded_the_chart_does_not_approve(world: World):
    """An uploader is an author of what the archive installs, apart from the revision's.
    A later uploader of the same bytes wrote nothing.
    """
    uploader, again = (as_approver(person(name, role="admin")) for name in ("uploader", "again"))
    archive, _ = uploads.upload(io.BytesIO(tiny()), by=uploader)
    uploads.upload(io.BytesIO(tiny()), by=again)
    row = PlanComponent(component="cilium", archive=archive.pk)

    authors = authorship.find_authors(world.pool, world.revision({"vm.swappiness": "10"}), [row])

    assert "uploaded" in authors.get(str(uploader.pk), "")
    assert str(again.pk) not in authors


def test_who_chose_the_pools_nodes_does_not_approve_until_a_plan_for_them_was_approved(world: World):
    chooser = as_approver(person("chooser", role="operator"))
    world.clock.forward(1)
    pools.update_pool(world.pool, by=chooser, selector="pool in (train)")
    world.look()
    plan = reviews.request(world.plan(), by=world.operator)
    assert_kept_out(plan, chooser, "selector")
    reviews.approve(plan, by=world.approver, digest=plan.digest)
    world.clock.forward(1)
    later = reviews.request(world.plan(world.revision({"vm.swappiness": "20"})), by=world.operator)
    assert reviews.approve(later, by=chooser, digest=later.digest).status == Plan.Status.APPROVED


def test_authors_are_part_of_what_is_approved(world: World):
    """Removing a name from the row changes the digest."""
    plan = world.plan()
    assert plan.authorship
    Plan.objects.filter(pk=plan.pk).update(authorship={})
    assert digests.plan_digest(Plan.objects.get(pk=plan.pk)) != plan.digest


def test_each_who_saves_values_of_a_cluster_is_an_author_of_them_until_they_are_emptied(world: World):
    from components.catalog import catalog
    from components.cluster_values import overrides

    component = catalog.get("cilium")
    writer, other = person("one", role="operator"), person("other", role="operator")
    for by, values in ((writer, {"a": 1}), (other, {"a": 1, "b": 2})):
        here = overrides.component_in_cluster(world.cluster, component)
        row = overrides._stored(here, values, by, here.version_of_row)
    assert set(row.authors) == {writer.pk, other.pk}
    here = overrides.component_in_cluster(world.cluster, component)
    assert overrides._stored(here, {}, other, here.version_of_row).authors == [other.pk]
