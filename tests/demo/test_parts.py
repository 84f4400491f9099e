"""Parts of the demo: its separate world, its clock, its people's file, its certificates."""

from __future__ import annotations

import ssl
import stat
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from django.conf import settings
from django.core.management import CommandError, call_command
from django.utils import timezone

from accounts import permissions
from accounts.access import tokens
from clusters.connection import registry
from clusters.fleet import FleetError
from common.clock import now
from config.demo import environment, fleet, hands, people, tls
from config.demo.history import BARE
from config.demo.journey import Journey
from gpus.models import STALE_AFTER


def test_the_first_cluster_grows_to_5000_nodes_and_the_others_stay() -> None:
    assert tuple(fleet.sites()) == tuple(fleet.SITES)
    large, *others = fleet.sites(5000)
    assert large.nodes + large.control_planes + large.joins == 5000
    assert large.pools == fleet.SITES[0].pools, "the story's nodes keep their pools"
    assert others == list(fleet.SITES[1:])


def test_large_demos_read_less_often_and_never_so_rarely_that_the_figures_are_too_old() -> None:
    assert fleet.reading_seconds(fleet.LEAST_NODES) == 30
    seconds = [fleet.reading_seconds(nodes) for nodes in range(fleet.LEAST_NODES, fleet.MOST_NODES + 1, 50)]
    assert seconds == sorted(seconds)
    assert timedelta(seconds=1.05 * seconds[-1]) + timedelta(seconds=45) < STALE_AFTER, "a reading takes its time, too"


@pytest.mark.parametrize("nodes", [-1, 0, 50, 5001])
def test_a_number_of_nodes_out_of_range_is_refused_with_the_range(nodes: int, monkeypatch) -> None:
    with pytest.raises(ValueError, match="51 to 5,000"):
        fleet.sites(nodes)
    monkeypatch.setenv(environment.MARK, str(settings.VAR))
    with pytest.raises(CommandError, match="make demo NODES=500"):
        call_command("demo", nodes=nodes)


def test_a_real_installations_variables_do_not_reach_the_demo(tmp_path: Path) -> None:
    theirs = {
        "SETPOINT_VAR": str(tmp_path),
        "SETPOINT_DATABASE_URL": "postgresql://production",
        "SETPOINT_EMBEDDED": "0",
    }
    environ = {**theirs, "SETPOINT_LOG_LEVEL": "INFO", "PATH": "/bin"}

    folder = environment.enter(environ)

    assert folder == tmp_path / "demo"
    assert environ == {
        "SETPOINT_VAR": str(folder),
        "SETPOINT_DEMO": str(folder),
        "SETPOINT_ALLOW_NETWORKS": "127.0.0.0/8",
        "SETPOINT_STUDY_SETTLE_MINUTES": "5",
        "SETPOINT_BREAK_GLASS_CLASS": "drain",
        "SETPOINT_LOG_LEVEL": "INFO",
        "SETPOINT_LOG_FORMAT": "console",
        "PATH": "/bin",
    }


def test_the_command_refuses_an_installation_that_is_not_the_demos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SETPOINT_DEMO", raising=False)
    with pytest.raises(CommandError, match="throws its database away"):
        call_command("demo")


def test_what_is_broken_by_hand_is_broken_in_a_running_demo_only(
    monkeypatch: pytest.MonkeyPatch, settings: Any, tmp_path: Path
) -> None:
    settings.VAR = tmp_path / "demo"
    monkeypatch.delenv(environment.MARK, raising=False)
    with pytest.raises(CommandError, match="Only a demo"):
        call_command("demo_break", "image")
    monkeypatch.setenv(environment.MARK, str(settings.VAR))
    with pytest.raises(CommandError, match="No demo runs here: make demo"):
        call_command("demo_break", "image")

    clock = Journey()
    sites = [
        fleet.Site(name, "development", nodes=1, gpus=1, is_busy=False, is_equipped=False) for name in (BARE, "other")
    ]
    with fleet.serving(sites, clock) as served:
        ways = {name: site.by_hand for name, site in served.items()}
        (tmp_path / hands.FILE).write_text(hands.kubeconfig(ways, BARE))
        with pytest.raises(CommandError, match="Volcano is not there"):
            call_command("demo_break", "image")
        with pytest.raises(CommandError, match="The quota of pretraining is not there"):
            call_command("demo_break", "quota")
        call_command("demo_break", "crash", "--cluster", "other")
        programs = served["other"].sim.programs
        assert programs.of("registry.example/volcanosh/vc-controller-manager:v1").crashes
        call_command("demo_break", "mend", "--cluster", "other")
        call_command("demo_break", "mend", "--cluster", "other")
        assert not programs.of("registry.example/volcanosh/vc-controller-manager:v1").crashes
        assert {entry.user for entry in served["other"].sim.audit} == {"you@example.com"}


def test_while_it_travels_the_journeys_clock_is_everybodys_and_afterwards_nobodys() -> None:
    journey = Journey()
    real = timezone.now
    with journey.from_long_ago(timedelta(days=2)):
        began = now()
        journey.advance(60)
        assert timedelta(seconds=60) < now() - began < timedelta(seconds=61)
        assert now() < now()
        assert timedelta(days=1, hours=23) < datetime.now(tz=UTC) - now() < timedelta(days=2)
    assert timezone.now is real
    assert abs(journey.now() - datetime.now(tz=UTC)) < timedelta(seconds=5)


def test_the_journey_never_passes_the_present_nor_goes_back() -> None:
    journey = Journey()
    with journey.from_long_ago(timedelta(hours=1)):
        journey.jump_to(timedelta(minutes=10))
        journey.jump_to(timedelta(minutes=50))
        assert datetime.now(tz=UTC) - journey.now() < timedelta(minutes=11)
        journey.advance(7200)
        assert journey.now() <= datetime.now(tz=UTC)


@pytest.mark.django_db
def test_the_file_for_programs_is_its_owners_alone_and_its_tokens_can_what_the_roles_can(tmp_path: Path) -> None:
    everybody = people.arrive()
    values = people.environment(everybody, "http://127.0.0.1:8000")
    file = tmp_path / "var" / "demo.env"
    file.parent.mkdir()
    file.write_text("old")
    file.chmod(0o644)

    people.write(file, values)

    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert dict(line.split("=", 1) for line in file.read_text().splitlines()) == values
    assert {"SETPOINT_URL", "SETPOINT_TOKEN_VIEWER", "SETPOINT_PASSWORD_VIEWER"} <= set(values)
    held = {}
    for name in everybody:
        assert everybody[name].user.check_password(values[f"SETPOINT_PASSWORD_{name.upper()}"])
        token = tokens.authenticate(values[f"SETPOINT_TOKEN_{name.upper()}"], address="127.0.0.1")
        assert token
        held[name] = {role for role in permissions.Role.values if permissions.may(token.user, role, ["*"])}
    assert held == {
        "viewer": {"viewer"},
        "operator": {"viewer", "operator"},
        "approver": {"viewer", "approver"},
        "lead": {"viewer", "approver"},
        "team": set(),
        "admin": {"viewer", "admin"},
    }


def test_a_cluster_is_reached_with_its_own_authority_and_token_and_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("django.conf.settings.SETPOINT_ALLOW_NETWORKS", ["127.0.0.0/8"])
    small = [fleet.Site(name, "development", nodes=1, gpus=1, is_busy=False) for name in ("one", "two")]
    with fleet.serving(small, Journey()) as served:
        own, other = served["one"].credential, served["two"].credential
        with registry.trying(own) as reached:
            assert reached.identify().uid == served["one"].sim.uid
        for wrong in ({"ca": other.ca}, {"token": other.token}):
            crossed = type(own)(**{**own.to_json(), **wrong})
            with registry.trying(crossed) as reached, pytest.raises(FleetError):
                reached.identify()


def test_the_certificate_passes_the_strictest_verification_and_only_for_its_address() -> None:
    pem, serving = tls.server_context("atlas")
    strict = ssl.create_default_context(cadata=pem)
    strict.verify_flags |= ssl.VERIFY_X509_STRICT  # the default since Python 3.13

    assert handshake(strict, serving, "127.0.0.1") == "kube-apiserver"
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(strict, serving, "127.0.0.2")


def handshake(client: ssl.SSLContext, server: ssl.SSLContext, host: str) -> str:
    """Both ends in memory. The name the server's certificate gives."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    asking = client.wrap_bio(to_client, to_server, server_hostname=host)
    answering = server.wrap_bio(to_server, to_client, server_side=True)
    for end in (asking, answering, asking, answering):
        with suppress(ssl.SSLWantReadError):
            end.do_handshake()
    subject = (asking.getpeercert() or {})["subject"]
    return str(dict(pair for part in subject for pair in part)["commonName"])
