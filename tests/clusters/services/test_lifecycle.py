"""The verdict on a connection, and connecting: what is refused leaves nothing behind."""

from __future__ import annotations

import pytest

from audit.models import Record
from clusters.connection import registry
from clusters.fleet import CredentialsRefused, WrongCertificate
from clusters.models import Cluster
from clusters.net.credentials import Credentials
from clusters.services import lifecycle
from common.errors import Invalid, NotAllowed, WrongState
from contract import names
from simfleet.core import SimCluster
from simfleet.memory import SimFleet
from tests.clusters.factories import ClusterFactory
from tests.clusters.services.connecting import TOKEN, URL, connect, mark_of, person

pytestmark = pytest.mark.django_db


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
