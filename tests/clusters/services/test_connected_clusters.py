"""A connected cluster: its credential is rotated, its fields are changed, and it is disconnected."""

from __future__ import annotations

from datetime import timedelta

import pytest

from accounts.models import RoleBinding, User
from accounts.people import pending
from accounts.people.pending import Proposed
from audit.models import Record
from clusters.connection import registry
from clusters.inventory import inspection
from clusters.models import Cluster, Node
from clusters.net.credentials import Credentials
from clusters.services import lifecycle
from common import hooks
from common.clock import now
from common.errors import Invalid, NotAllowed, Stale, WrongState
from simfleet.core import SimCluster
from simfleet.memory import SimFleet
from tests.clusters.factories import ClusterFactory
from tests.clusters.services.connecting import TOKEN, URL, connect, mark_of, person

pytestmark = pytest.mark.django_db


def test_a_rotated_credential_must_lead_to_the_same_cluster(sim, admin):
    cluster = connect(admin)
    elsewhere = "https://elsewhere.example:6443"

    with (
        registry.override(elsewhere, SimFleet(SimCluster(seed=5, name="other"))),
        pytest.raises(Invalid, match="leads to another cluster"),
    ):
        lifecycle.rotate_credential(cluster, credential=Credentials(server=elsewhere, token="x"), by=admin)

    cluster.refresh_from_db()
    assert (cluster.server, registry.credentials(cluster)) == (URL, TOKEN)


def test_an_administrator_of_one_cluster_learns_no_other_clusters_name_from_a_credential(sim, admin):
    hidden = connect(admin)
    own = ClusterFactory(environment="development")
    hers = person("hers@example.com", ("admin", f"cluster:{own.pk}"))

    with pytest.raises(Invalid, match="leads to another cluster") as refused:
        lifecycle.rotate_credential(own, credential=TOKEN, by=hers)
    verdict = lifecycle.test_connection(TOKEN, hers)

    assert not verdict.is_connectable
    assert hidden.name not in f"{refused.value} {verdict}".replace(URL, "")
    assert lifecycle.test_connection(TOKEN, admin).known_as == hidden.name


def test_a_rotated_credential_may_come_with_another_url(sim, admin, clock):
    cluster = connect(admin)
    before = cluster.credential_set_at
    clock.forward(5)
    moved = Credentials(server="https://atlas-2.example:6443", token="fresh")

    with registry.override(moved.server, SimFleet(sim)):
        lifecycle.rotate_credential(cluster, credential=moved, by=admin)

    cluster.refresh_from_db()
    assert registry.credentials(cluster) == moved
    assert cluster.credential_set_at == before + timedelta(seconds=5)
    assert Record.objects.filter(action="cluster.rotate_credential").exists()


def test_a_credential_with_too_few_permissions_does_not_replace_one_that_works(sim, admin):
    cluster = connect(admin)
    sim.api.forbidden.add(("patch", "nodes"))

    with pytest.raises(Invalid, match="patch nodes"):
        lifecycle.rotate_credential(cluster, credential=Credentials(server=URL, token="weaker"), by=admin)

    cluster.refresh_from_db()
    assert registry.credentials(cluster) == TOKEN


def test_changes_are_checked_versioned_and_recorded(admin):
    cluster = ClusterFactory(environment="staging")

    lifecycle.update(cluster, by=admin, version=1, budget=5)
    with pytest.raises(Stale):
        lifecycle.update(Cluster.objects.get(), by=admin, version=1, budget=6)
    with pytest.raises(Invalid):
        lifecycle.update(Cluster.objects.get(), by=admin, budget=0)
    with pytest.raises(Invalid, match="cannot be used"):
        lifecycle.update(Cluster.objects.get(), by=admin, uid="stolen")

    cluster.refresh_from_db()
    assert (cluster.budget, cluster.version) == (5, 2)
    record = Record.objects.get()
    assert (record.before["budget"], record.after["budget"]) == (1, 5)


def test_moving_a_cluster_to_another_environment_needs_a_say_in_both():
    cluster = ClusterFactory(environment="staging")
    local = person("lee", ("admin", "env:staging"))

    with pytest.raises(NotAllowed):
        lifecycle.update(cluster, by=local, environment="production")

    RoleBinding.objects.create(user=local, role="admin", scope="env:production")
    done = lifecycle.update(cluster, by=User.objects.get(pk=local.pk), environment="production")
    assert isinstance(done, Proposed)
    assert Cluster.objects.get().environment == "staging"
    pending.consent(pk=done.change.pk, by=person("boss", ("admin", "*")))
    assert Cluster.objects.get().environment == "production"


def test_the_watchs_writes_do_not_make_a_change_stale(sim, admin):
    cluster = connect(admin)

    inspection.refresh(cluster, SimFleet(sim))
    lifecycle.update(Cluster.objects.get(), by=admin, version=1, budget=2)

    assert Cluster.objects.get().budget == 2


# ── disconnecting ─────────────────────────────────────────────────────────────────────────────────────────────────────
def test_disconnecting_says_what_stays_and_removes_the_rest(sim, admin):
    cluster = connect(admin)
    inspection.refresh(cluster, SimFleet(sim))
    hooks.left_behind.subscribe(lambda pk: ["12 settings on 3 nodes."] if pk == cluster.pk else [])
    disconnected = []
    hooks.cluster_disconnecting.subscribe(disconnected.append)
    pk = cluster.pk

    left = lifecycle.disconnect(cluster, by=admin)

    assert "12 settings on 3 nodes." in left.stays
    assert mark_of(sim) is None
    assert not Cluster.objects.exists()
    assert not Node.objects.exists()
    assert disconnected == [pk]
    assert Record.objects.filter(action="cluster.disconnect", cluster_id=pk).exists()


def test_letting_a_cluster_go_and_connecting_it_again_moves_it_to_no_other_environment(sim, admin):
    """One administrator alone could do that; a move waits for a second one."""
    person("boss", ("admin", "*"))
    person("anne", ("approver", "*"))
    lifecycle.disconnect(connect(admin, environment="production"), by=admin)

    for environment in ("development", "staging"):
        with pytest.raises(Invalid) as refused:
            connect(admin, name="another", environment=environment)
        assert "environment" in refused.value.fields
        assert mark_of(sim) is None

    lifecycle.disconnect(connect(admin, environment="production"), by=admin)
    moved = lifecycle.update(connect(admin, environment="production"), by=admin, environment="development")
    assert isinstance(moved, Proposed)
    pending.consent(pk=moved.change.pk, by=User.objects.get(email="boss@example.com"))
    lifecycle.disconnect(Cluster.objects.get(), by=admin)
    assert connect(admin, environment="development").environment == "development"


def test_a_cluster_with_live_rollouts_stays(sim, admin):
    cluster = connect(admin)
    hooks.disconnect_blockers.subscribe(lambda _: ["R-131 is running"])

    with pytest.raises(WrongState, match="R-131 is running"):
        lifecycle.disconnect(cluster, by=admin)

    assert Cluster.objects.exists()
    assert mark_of(sim)


def test_an_unreachable_cluster_can_be_disconnected_and_keeps_its_mark(sim, admin):
    cluster = connect(admin)
    sim.faults.outage = True

    left = lifecycle.disconnect(cluster, by=admin)

    assert any("mark" in sentence for sentence in left.stays)
    assert not Cluster.objects.exists()


def test_disconnecting_needs_an_administrator(sim, admin):
    cluster = connect(admin)

    with pytest.raises(NotAllowed):
        lifecycle.disconnect(cluster, by=person("olga", ("operator", "*")))


def test_a_credential_is_used_until_it_is_replaced(admin, sim):
    cluster = connect(admin)
    registry.uninstall(URL)
    first = registry.connect(cluster)
    assert registry.connect(Cluster.objects.get()) is first

    Cluster.objects.update(credential_set_at=now() + timedelta(seconds=1))

    assert registry.connect(Cluster.objects.get()) is not first
    registry.forget(cluster.pk)
