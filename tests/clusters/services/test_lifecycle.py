"""Connecting, keeping and disconnecting: what is refused leaves nothing behind."""

from __future__ import annotations

from datetime import timedelta

import pytest

from accounts.models import RoleBinding, User
from accounts.people import pending
from accounts.people.pending import Proposed
from audit.models import Record
from clusters.connection import registry
from clusters.fleet import CredentialsRefused, WrongCertificate
from clusters.inventory import inspection
from clusters.models import Cluster, Node
from clusters.net.credentials import Credentials
from clusters.services import lifecycle
from common import hooks
from common.clock import now
from common.errors import Invalid, NotAllowed, Stale, WrongState
from contract import names
from simfleet.core import SimCluster
from simfleet.memory import SimFleet
from tests.clusters.factories import ClusterFactory

pytestmark = pytest.mark.django_db

URL = "https://atlas.example:6443"
TOKEN = Credentials(server=URL, token="s3cret")


def person(name, *bindings):
    user = User.objects.create_user(f"{name}@example.com")
    for role, scope in bindings:
        RoleBinding.objects.create(user=user, role=role, scope=scope)
    return user


@pytest.fixture
def admin():
    return person("ada", ("admin", "*"))


@pytest.fixture
def sim():
    """A cluster that answers at URL, equipped and with one node."""
    cluster = SimCluster(name="atlas")
    cluster.add_node("n1")
    cluster.tick(60)
    with registry.override(URL, SimFleet(cluster)):
        yield cluster


def connect(by, **over):
    return lifecycle.connect_cluster(
        **{"name": "atlas", "environment": "staging", "credential": TOKEN, "by": by} | over
    )


def mark_of(sim):
    return SimFleet(sim).installation()


def states(verdict):
    return {check.name: check.state for check in verdict.checks}


# ── the verdict ───────────────────────────────────────────────────────────────────────────────────────────────────────
def test_a_cluster_in_order_gets_a_clear_yes(sim):
    verdict = lifecycle.test_connection(TOKEN)

    assert verdict.is_connectable
    assert (verdict.uid, verdict.version) == (sim.uid, "v1.35.4")
    assert set(states(verdict).values()) == {"ok"}


def test_an_outage_is_a_verdict_not_an_error(sim):
    sim.faults.outage = True

    verdict = lifecycle.test_connection(TOKEN)

    assert not verdict.is_connectable
    assert "does not answer" in verdict.problems[0]
    assert verdict.checks[0].fix == "Check the address, and that this server can reach it."


def test_a_refused_credential_and_an_unknown_authority_are_told_from_an_outage_with_what_helps(sim, monkeypatch):
    def says(error):
        def identify(_self):
            raise error

        monkeypatch.setattr(SimFleet, "identify", identify)
        return lifecycle.test_connection(TOKEN).checks

    (check,) = says(CredentialsRefused("the credentials are not accepted (401)"))
    assert "answers, and refuses: the credentials are not accepted" in check.text
    assert "new token of the service account setpoint-controller" in check.fix
    (check,) = says(WrongCertificate("unable to get local issuer"))
    assert check.fix == "Give the authority that signed it, as PEM."


@pytest.mark.parametrize(
    ("version", "state"),
    [
        ("v1.30.0", "ok"),
        ("v1.35.4-eks-1", "ok"),
        ("v2.0.0", "ok"),
        ("v1.29.9", "bad"),
        ("quite new", "bad"),
        ("", "bad"),
    ],
)
def test_the_version_must_be_one_that_can_confine_agents(version, state):
    with registry.override(URL, SimFleet(SimCluster(version=version))):
        verdict = lifecycle.test_connection(TOKEN)

    assert states(verdict)["Version"] == state
    assert verdict.is_connectable == (state == "ok")


def test_a_missing_permission_is_named_with_its_reason(sim):
    sim.api.forbidden.add(("create", "pods/eviction"))

    verdict = lifecycle.test_connection(TOKEN)

    assert not verdict.is_connectable
    assert "create pods/eviction (drain within PodDisruptionBudgets)" in verdict.problems[0]
    assert [r.permission.resource for r in verdict.permissions if not r.allowed] == ["pods/eviction"]


def test_what_is_not_installed_comes_with_the_line_that_installs_it():
    with registry.override(URL, SimFleet(SimCluster(equipped=False))):
        verdict = lifecycle.test_connection(TOKEN)

    missing = {check.name: check for check in verdict.checks if check.state != "ok"}
    assert missing["NodeTuning resource"].state == "bad"
    assert {"NodeTuning resource", "Admission policies", "Agent"} <= set(missing)
    assert missing["NodeTuning resource"].fix == "kubectl apply -f deploy/setpoint.yaml"
    assert names.SPEC_POLICY in lifecycle.manifest()


# ── connecting ────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_connecting_stores_marks_and_records(sim, admin, settings):
    cluster = connect(admin, budget=3)

    cluster.refresh_from_db()
    assert (cluster.uid, cluster.name, cluster.environment, cluster.budget) == (sim.uid, "atlas", "staging", 3)
    assert (cluster.ownership, mark_of(sim)) == ("ours", settings.SETPOINT_INSTALLATION)
    assert cluster.equipment["crd"] is True
    assert registry.credentials(cluster) == TOKEN
    assert b"s3cret" not in bytes(cluster.credential)
    record = Record.objects.get()
    assert (record.action, record.target_name) == ("cluster.connect", "atlas")
    assert "s3cret" not in str(record.after)


def test_one_cluster_under_two_urls_is_one(sim, admin):
    connect(admin)
    other = "https://203.0.113.7:6443"

    with registry.override(other, SimFleet(sim)), pytest.raises(WrongState, match="connected already, as atlas"):
        connect(admin, name="second", credential=Credentials(server=other, token="x"))

    assert Cluster.objects.count() == 1


def test_a_second_installation_is_refused_and_taking_over_is_explicit_and_on_record(sim, admin, settings):
    SimFleet(sim).claim("other-installation")

    with pytest.raises(lifecycle.Foreign, match="other-installation"):
        connect(admin)
    assert not Cluster.objects.exists()
    assert mark_of(sim) == "other-installation"
    connect(admin, take_over=True)

    assert mark_of(sim) == settings.SETPOINT_INSTALLATION
    assert "other-installation" in Record.objects.get().message


def test_a_mark_that_another_set_a_moment_ago_counts(sim, admin, monkeypatch):
    look = lifecycle.test_connection

    def look_too_early(credential, by=None):
        verdict = look(credential)
        SimFleet(sim).claim("other-installation")
        return verdict

    monkeypatch.setattr(lifecycle, "test_connection", look_too_early)

    with pytest.raises(lifecycle.Foreign, match="other-installation"):
        connect(admin)
    assert (Cluster.objects.count(), Record.objects.count()) == (0, 0)
    assert mark_of(sim) == "other-installation"


@pytest.mark.parametrize(
    ("wish", "field"),
    [
        ({"name": "Not a name"}, "name"),
        ({"name": ""}, "name"),
        ({"name": "x" * 64}, "name"),
        ({"name": "a\nb"}, "name"),
        ({"budget": 0}, "budget"),
        ({"budget": -1}, "budget"),
        ({"budget": True}, "budget"),
    ],
)
def test_a_bad_wish_names_its_field_and_stores_nothing(sim, admin, wish, field):
    with pytest.raises(Invalid) as caught:
        connect(admin, **wish)

    assert field in caught.value.fields
    assert (Cluster.objects.count(), mark_of(sim), Record.objects.count()) == (0, None, 0)


def test_a_failed_connection_leaves_nothing_behind(sim, admin):
    sim.faults.add("error", verb="create", resource="configmaps", times=1)

    with pytest.raises(Invalid):
        connect(admin)
    assert (Cluster.objects.count(), mark_of(sim)) == (0, None)
    connect(admin)

    assert Cluster.objects.count() == 1


def test_a_row_that_cannot_be_stored_gives_the_mark_back(sim, admin, monkeypatch):
    def full(*_, **__):
        raise RuntimeError("disk full")

    monkeypatch.setattr("clusters.services.lifecycle.audit.record", full)
    with pytest.raises(RuntimeError):
        connect(admin)

    assert (Cluster.objects.count(), mark_of(sim)) == (0, None)


def test_connecting_needs_an_administrator_of_that_environment(sim):
    local = person("lee", ("admin", "env:staging"))

    with pytest.raises(NotAllowed):
        connect(person("olga", ("operator", "*")))
    with pytest.raises(NotAllowed):
        connect(local, environment="production")
    connect(local, environment="staging")

    assert Cluster.objects.count() == 1


def test_a_name_is_given_once(sim, admin):
    ClusterFactory(name="atlas")

    with pytest.raises(Invalid, match="a cluster atlas already"):
        connect(admin)
    assert mark_of(sim) is None


# ── keeping ───────────────────────────────────────────────────────────────────────────────────────────────────────────
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
    told = []
    hooks.cluster_disconnecting.subscribe(told.append)
    pk = cluster.pk

    left = lifecycle.disconnect(cluster, by=admin)

    assert "12 settings on 3 nodes." in left.stays
    assert mark_of(sim) is None
    assert not Cluster.objects.exists()
    assert not Node.objects.exists()
    assert told == [pk]
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
