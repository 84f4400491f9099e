"""`manage.py doctor`: each thing that can be wrong is named, what hangs delays nothing, and nothing is written."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
import threading
from datetime import timedelta
from io import StringIO
from pathlib import Path

import pytest
from cryptography.fernet import Fernet
from django.conf import settings as configured
from django.core.management import CommandError, call_command
from django.db import ProgrammingError, connection
from django.db.migrations.recorder import MigrationRecorder

from accounts.providers import OidcProvider
from audit import tasks
from audit.services import record
from clusters.models import Cluster, Node, NodeTuning
from common.clock import now
from components.models import Archive
from config.doctor import charts, findings, fleets, keys, network, report, stores
from config.doctor.findings import Check, Finding, ok, problem
from contract import names
from gpus.models import TelemetrySource
from notices.models import Channel
from simfleet.clock import WallClock
from simfleet.core import SimCluster
from tests.clusters.factories import ClusterFactory, reached_with
from tests.contract.door import Entrance
from tests.controlplane.pki import Authority
from tests.ports import free_port

AREAS = {"agents", "broker", "charts", "clusters", "database", "egress", "keys", "processes", "rollouts", "time"}


def states(results: list[Finding], area: str = "") -> list[str]:
    return [finding.state for finding in results if not area or finding.area == area]


def problems(of: object) -> list[Finding]:
    return [finding for finding in of if finding.state == "problem"]  # type: ignore[attr-defined]


# ── Running checks ────────────────────────────────────────────────────────────────────────────────────────────────────
def test_what_hangs_is_named_and_delays_no_other() -> None:
    release = threading.Event()

    def hangs():
        yield ok("a", "seen before it hung")
        release.wait()

    checks = [Check("a", f"cluster {n}", 0.05, hangs) for n in range(4)]
    checks += [Check("b", "the rest", 60, lambda n=n: [ok("b", str(n))]) for n in range(20)]
    try:
        results = findings.run(checks, at_once=2)
    finally:
        release.set()
    assert [f.text for f in results if f.area == "b"] == [str(n) for n in range(20)]
    assert states(results, "a") == ["ok", "problem"] * 4
    assert [n for n in range(4) if any(f"cluster {n} " in f.text for f in results)] == [0, 1, 2, 3]


def test_a_check_that_fails_quotes_nothing_of_its_error() -> None:
    def fails():
        yield ok("a", "before")
        raise ValueError("token=s3cret")

    results = findings.run([Check("a", "the token", 60, fails)])
    assert states(results) == ["ok", "problem"]
    assert "s3cret" not in str(results)
    assert "ValueError" in results[1].text


# ── Clusters ──────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture
def served(settings):
    """Yield a cluster's row, its simulated API server behind TLS, and the server's entrance."""
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    sim = SimCluster(name="alpha", clock=WallClock())
    sim.add_node("n1")
    entrance = Entrance(sim)
    row = reached_with(ClusterFactory(name="alpha"), entrance.credentials())
    Cluster.objects.filter(pk=row.pk).update(uid=entrance.fleet().identify().uid)
    row.refresh_from_db()
    yield row, sim, entrance
    entrance.close()


@pytest.mark.django_db
def test_a_sound_cluster_has_no_problem_and_is_left_as_it_was(served) -> None:
    row, sim, _ = served
    version = sim.store.rv
    results = list(fleets.cluster(row.pk))
    assert not problems(results), problems(results)
    assert {finding.area for finding in results if finding.state == "ok"} == {"clusters", "egress", "time"}
    assert sim.store.rv == version


@pytest.mark.django_db
@pytest.mark.parametrize("wrong", ["token", "authority", "uid", "address", "key", "mark"])
def test_what_is_wrong_with_a_cluster_is_a_problem(wrong: str, served, settings) -> None:
    row, _, entrance = served
    credentials = entrance.credentials()
    if wrong == "token":
        reached_with(row, entrance.credentials("that ended"))
    elif wrong == "authority":
        with_ca = type(credentials)(server=credentials.server, ca=Authority().pem, token="setpoint")
        reached_with(row, with_ca)
    elif wrong == "uid":
        Cluster.objects.filter(pk=row.pk).update(uid="another")
    elif wrong == "address":
        reached_with(row, type(credentials)(server=f"https://127.0.0.1:{free_port()}", ca=entrance.ca, token="t"))
    elif wrong == "key":
        settings.SETPOINT_CREDENTIAL_KEYS = [Fernet.generate_key().decode()]
    else:
        entrance.fleet().claim("another installation")
    named = problems(fleets.cluster(row.pk))
    assert named
    assert all("alpha" in finding.text or row.server in finding.text for finding in named), named
    assert all(finding.advice for finding in named)


# ── Agents and rollouts ───────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.django_db
@pytest.mark.parametrize(
    ("tuning", "state"),
    [
        ({"protocol": names.PROTOCOL, "agent_version": names.RELEASE}, "ok"),
        ({"protocol": names.PROTOCOL, "agent_version": "0.0.1"}, "warning"),
        ({"protocol": names.PROTOCOL + names.MAX_SKEW + 1, "agent_version": "9.0.0"}, "problem"),
        ({"protocol": names.PROTOCOL, "agent_version": names.RELEASE, "silent_since": now()}, "problem"),
        ({"protocol": 0}, "warning"),
        (None, "warning"),
    ],
)
def test_agents_are_judged_by_version_and_by_silence(tuning: dict | None, state: str) -> None:
    row = ClusterFactory(reach=Cluster.Reach.REACHABLE, observed_at=now(), leases_at=now())
    node = Node.objects.create(cluster=row, uid="u1", name="node-one")
    if tuning is not None:
        NodeTuning.objects.create(node=node, **tuning)
    assert states(list(fleets.agents())) == [state]


@pytest.mark.django_db
def test_agents_of_a_cluster_that_is_not_watched_are_not_called_healthy() -> None:
    ClusterFactory(reach=Cluster.Reach.REACHABLE, observed_at=now() - timedelta(hours=1))
    assert states(list(fleets.agents())) == ["problem"]


@pytest.mark.django_db
def test_each_node_that_is_newer_than_the_database_is_named() -> None:
    row, unknown = ClusterFactory(), "0a0a0a0a-0000-4000-8000-000000000000"
    for n, fields in enumerate(({}, {"is_cordoned": True, "cordoned_by": f"us/{unknown}"}, {})):
        node = Node.objects.create(cluster=row, uid=f"u{n}", name=f"node-{n}", **fields)
        NodeTuning.objects.create(node=node, protocol=1, spec_step=unknown if n == 0 else "")
    text = " ".join(finding.text for finding in problems(fleets.rollouts()))
    assert [name for name in ("node-0", "node-1", "node-2") if name in text] == ["node-0", "node-1"]


# ── Keys ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.django_db
def test_the_right_keys_open_everything_and_others_are_named(settings) -> None:
    settings.SETPOINT_CREDENTIAL_KEYS = [Fernet.generate_key().decode()]
    ClusterFactory(name="alpha")
    channel = Channel(name="chat", url="https://example.org/hooks/s3cret")
    channel.set_secret("whsec_s3cret")
    channel.save()
    assert states(list(keys.opened())) == ["ok"]
    assert not problems(keys.configured())
    settings.SETPOINT_CREDENTIAL_KEYS = [Fernet.generate_key().decode()]
    named = problems(keys.opened())
    assert [word for word in ("alpha", "chat") if any(word in finding.text for finding in named)] == ["alpha", "chat"]
    assert "s3cret" not in str(named)
    settings.SETPOINT_CREDENTIAL_KEYS = ["no key"]
    assert problems(keys.configured())


@pytest.mark.django_db
def test_looking_for_keys_makes_none(settings, tmp_path: Path) -> None:
    settings.SETPOINT_CREDENTIAL_KEYS = [Fernet.generate_key().decode()]
    ClusterFactory(name="alpha")
    settings.SETPOINT_CREDENTIAL_KEYS, settings.VAR = [], tmp_path
    assert problems(keys.opened())
    list(keys.configured())
    assert not list(tmp_path.iterdir())


def test_a_short_secret_is_warned_of_without_showing_it(settings) -> None:
    settings.SETPOINT_TOKEN_PEPPER = "s3cret"
    results = list(keys.configured())
    assert states(results)[0] == "warning"
    assert "SETPOINT_TOKEN_PEPPER" in results[0].text
    assert "s3cret" not in str(results)


@pytest.mark.django_db
def test_another_audit_key_does_not_fit_the_last_seal(settings) -> None:
    assert not problems(keys.audit())
    for n in range(2):
        record(by="a test", action="test.try", target=f"t:{n}", target_name="t")
        tasks.seal()
    assert not problems(keys.audit())
    settings.SETPOINT_AUDIT_KEY = "another key, as after a restore with the wrong one"
    assert problems(keys.audit())


# ── Time, egress, charts, processes ───────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("seconds", "state"), [(0, "ok"), (4, "ok"), (6, "warning"), (-6, "warning"), (3600, "problem"), (-3600, "problem")]
)
def test_clocks_are_judged_in_both_directions(seconds: int, state: str) -> None:
    finding = network.judged("east", timedelta(seconds=seconds))
    assert finding.state == state
    assert ("behind" in finding.text) == (seconds < -5)


@pytest.mark.django_db
def test_a_servers_clock_is_read_from_its_answer(served, monkeypatch: pytest.MonkeyPatch) -> None:
    row, sim, entrance = served
    monkeypatch.setattr(sim.clock, "now", lambda: now() + timedelta(minutes=10))
    named = [f for f in network.api_server(row.name, row.server, entrance.ca) if f.area == network.TIME]
    assert states(named) == ["problem"]
    assert "ahead" in named[0].text


@pytest.mark.parametrize("what", ["closed", "metadata", "no TLS"])
def test_a_destination_that_cannot_be_reached_is_named_without_its_address(what: str, settings) -> None:
    settings.SETPOINT_ALLOW_NETWORKS = ["127.0.0.0/8"]
    with socket.create_server(("127.0.0.1", 0)) as server:
        plain = server.getsockname()[1]
        threading.Thread(target=lambda: server.accept()[0].sendall(b"220 not TLS\r\n"), daemon=True).start()
        host = {
            "closed": f"127.0.0.1:{free_port()}",
            "metadata": "169.254.169.254",
            "no TLS": f"127.0.0.1:{plain}",
        }[what]
        results = list(network.reach(network.Destination("The receiver of channel chat", f"https://{host}/T0/s3cret")))
    assert states(results) == ["problem"]
    assert "channel chat" in results[0].text
    assert "s3cret" not in str(results)


def test_the_provider_of_single_sign_on_is_a_destination(settings) -> None:
    settings.EMAIL_HOST = settings.SETPOINT_AUDIT_HEADS_WEBHOOK = ""
    issuer = f"http://127.0.0.1:{free_port()}"
    settings.SETPOINT_OIDC = (OidcProvider("corp", "Corp", issuer, (), client_id="id", client_secret="s3cret"),)
    [finding] = findings.run(network.checks(network.configured()))
    assert (finding.state, "Corp" in finding.text, "s3cret" in str(finding)) == ("problem", True, False)


def test_clusters_whose_rows_cannot_be_read_are_a_problem_and_no_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable() -> list[network.Destination]:
        raise ProgrammingError('column "url" does not exist')

    monkeypatch.setattr(network, "stored", unreadable)
    [finding] = findings.run(report._of_clusters())
    assert (finding.area, finding.state) == ("clusters", "problem")


@pytest.mark.django_db
def test_a_newer_migration_is_a_problem_and_one_of_an_app_that_was_taken_out_is_not() -> None:
    MigrationRecorder(connection).record_applied("taken_out", "0001_initial")
    assert stores._migrations().state == "ok"
    MigrationRecorder(connection).record_applied("accounts", "9999_of_the_future")
    finding = stores._migrations()
    assert (finding.state, "9999_of_the_future" in finding.text) == ("problem", True)


@pytest.mark.django_db
def test_what_people_entered_is_reached_as_far_as_it_is_enabled(served, settings) -> None:
    row, _, entrance = served
    settings.EMAIL_HOST = "127.0.0.1"
    settings.EMAIL_PORT = int(entrance.door.url.rpartition(":")[2])
    Channel.objects.create(name="chat", url=f"{entrance.door.url}/hook", ca=entrance.ca)
    Channel.objects.create(name="off", url="https://nowhere.invalid", is_enabled=False)
    TelemetrySource.objects.create(cluster=row, kind="prometheus", url=entrance.door.url)  # whose CA is not known here
    results = findings.run(network.checks([*network.configured(), *network.stored()]))
    assert states(results) == ["ok", "ok", "problem"]


@pytest.mark.django_db
def test_an_archive_that_is_not_what_its_digest_names_is_a_problem() -> None:
    content = b"chart"
    Archive.objects.create(sha256=hashlib.sha256(content).hexdigest(), name="c", version="1", size=5, content=content)
    assert not problems(charts.charts())
    Archive.objects.update(content=b"other")
    assert len(problems(charts.charts())) == 1


@pytest.mark.django_db
def test_silent_processes_are_problems(clock) -> None:
    tasks.seal()
    assert not problems(stores.processes())
    ClusterFactory()
    clock.forward(61)
    assert len(problems(stores.processes())) == 2


# ── The command ───────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.django_db(transaction=True)
def test_the_command_tells_all_as_json_and_nothing_that_is_secret(served) -> None:
    _, _, entrance = served
    channel = Channel(name="chat", url=f"https://127.0.0.1:{free_port()}/T0/planted-path", ca=entrance.ca)
    channel.set_secret("planted-secret")
    channel.save()
    tasks.seal()
    out = StringIO()
    with pytest.raises(CommandError) as stopped:
        call_command("doctor", "--json", stdout=out)
    assert stopped.value.returncode == 1
    document = json.loads(out.getvalue())
    areas = {finding["area"] for finding in document["findings"]}
    assert areas == AREAS
    assert document["problems"] == sum(finding["state"] == "problem" for finding in document["findings"])
    for secret in ("planted", "setpoint-token", configured.SETPOINT_AUDIT_KEY, configured.SECRET_KEY):
        assert secret not in out.getvalue() + str(stopped.value)


def test_without_the_database_the_rest_is_checked(tmp_path: Path) -> None:
    url = f"postgresql://setpoint:planted@127.0.0.1:{free_port()}/none"
    variables = {"DJANGO_SETTINGS_MODULE": "config.settings", "SETPOINT_VAR": str(tmp_path)}
    variables["SETPOINT_DATABASE_URL"] = url
    ended = subprocess.run(
        [sys.executable, "manage.py", "doctor", "--json"],
        cwd=configured.BASE_DIR, env={**os.environ, **variables}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ended.returncode == 1, ended.stderr
    results = [Finding(**finding) for finding in json.loads(ended.stdout)["findings"]]
    assert [finding.area for finding in results if finding.state == "problem"] == ["database"]
    assert {"keys", "broker", "charts"} <= {finding.area for finding in results if finding.state == "ok"}
    assert "planted" not in ended.stdout + ended.stderr


def test_a_report_counts_its_findings() -> None:
    made = report.Report((ok("a", "x"), problem("a", "y", "z"), findings.warning("a", "y", "z")))
    assert (made.problems, made.warnings) == (1, 1)
