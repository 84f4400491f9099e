"""Reading of SETPOINT_* variables: clear or not at all."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from django.db.utils import ConnectionHandler

from config import env
from tests.settings import KEPT


def test_a_value_may_come_from_a_mounted_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("postgresql://setpoint:s%40cret@db:5433/fleet\n")
    monkeypatch.setenv("SETPOINT_DATABASE_URL_FILE", str(tmp_path / "password"))
    monkeypatch.delenv("SETPOINT_DATABASE_URL", raising=False)

    read = env.database("SETPOINT_DATABASE_URL", "sqlite:///nowhere")

    assert (read["PASSWORD"], read["HOST"], read["PORT"], read["NAME"]) == ("s@cret", "db", "5433", "fleet")


def test_what_a_database_url_asks_for_reaches_the_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(
        "SETPOINT_X", "postgresql://u:p%40x@a:5432,b:5433/fleet?sslmode=verify-full&sslrootcert=/ca&options=-c%20x%3D1"
    )
    read = env.database("SETPOINT_X", "")
    wrapper = ConnectionHandler({"default": read})["default"]
    parameters = wrapper.get_connection_params()

    assert (parameters["host"], parameters["port"], parameters["dbname"]) == ("a,b", "5432,5433", "fleet")
    assert (parameters["user"], parameters["password"]) == ("u", "p@x")
    assert (parameters["sslmode"], parameters["sslrootcert"]) == ("verify-full", "/ca")
    assert "-c x=1" in parameters["options"]
    assert "jit=off" in parameters["options"]


@pytest.mark.parametrize(
    ("url", "says"),
    [("postgresql://u@h/x?sslmode=verify-full&sslmode=disable", "sslmode twice"), ("sqlite://", "names no file"),
     ("sqlite:///", "names no file")],
)  # fmt: skip
def test_a_database_url_that_could_be_read_in_two_ways_is_refused(
    monkeypatch: pytest.MonkeyPatch, url: str, says: str
) -> None:
    monkeypatch.setenv("SETPOINT_X", url)
    with pytest.raises(env.BadEnvironment, match=says):
        env.database("SETPOINT_X", "")


def test_a_database_url_that_cannot_be_read_does_not_show_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SETPOINT_X", "postgresql://u:hid%zzden@h/x")
    with pytest.raises(env.BadEnvironment) as refused:
        env.database("SETPOINT_X", "")
    assert "hid" not in str(refused.value)
    assert "den" not in str(refused.value)


def test_behind_a_pooler_no_cursor_and_no_option_outlives_a_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    url = "postgresql://u@a:1,b:2/n?sslmode=verify-full&target_session_attrs=read-write"
    monkeypatch.setenv("SETPOINT_X", url)
    monkeypatch.setenv("SETPOINT_Y", "transaction")
    direct, pooled = env.database("SETPOINT_X", ""), env.database("SETPOINT_X", "")
    env.pooler("SETPOINT_NOT_SET", direct)
    assert direct == env.database("SETPOINT_X", "")
    env.pooler("SETPOINT_Y", pooled)
    assert pooled["DISABLE_SERVER_SIDE_CURSORS"] is True
    assert pooled["OPTIONS"] == {k: v for k, v in direct["OPTIONS"].items() if k != "options"}
    for value, database, complaint in (
        ("session", url, "none or transaction"),
        ("transaction", "sqlite:////x", "PostgreSQL only"),
        ("transaction", f"{url}&options=-c%20search_path%3Dx", "out of the URL"),
    ):
        monkeypatch.setenv("SETPOINT_X", database)
        monkeypatch.setenv("SETPOINT_Y", value)
        with pytest.raises(env.BadEnvironment, match=f"SETPOINT_Y.*{complaint}"):
            env.pooler("SETPOINT_Y", env.database("SETPOINT_X", ""))


def test_a_lease_that_no_call_fits_into_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Steps would never write with such a lease, and would only report that they wait for their next turn."""
    there = {"SETPOINT_EMBEDDED": "true", "SETPOINT_VAR": str(tmp_path), "SETPOINT_LEASE_SECONDS": "10"}
    output = _settings(there)
    assert "SETPOINT_LEASE_SECONDS must be at least twice SETPOINT_CALL_TIMEOUT_SECONDS" in output
    assert _settings({**there, "SETPOINT_CALL_TIMEOUT_SECONDS": "5"}) == ""


def _settings(environment: dict[str, str]) -> str:
    """Return the output of a process that reads the settings with this environment."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SETPOINT_")}
    command = [sys.executable, "-c", "import config.settings"]
    done = subprocess.run(command, env=kept | environment, capture_output=True, text=True, check=False, timeout=120)
    return done.stderr


def test_a_value_given_twice_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SETPOINT_X", "one")
    monkeypatch.setenv("SETPOINT_X_FILE", str(tmp_path / "x"))
    with pytest.raises(env.BadEnvironment, match="SETPOINT_X and SETPOINT_X_FILE"):
        env.text("SETPOINT_X")


def test_a_secret_file_that_is_not_there_ends_the_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SETPOINT_X_FILE", str(tmp_path / "absent"))
    with pytest.raises(env.BadEnvironment, match="SETPOINT_X_FILE"):
        env.secret("SETPOINT_X", tmp_path / "x.key")


@pytest.mark.parametrize(
    ("read", "value", "complaint"),
    [
        (lambda: env.flag("SETPOINT_X"), "perhaps", "true or false"),
        (lambda: env.integer("SETPOINT_X", 3), "three", "whole number"),
        (lambda: env.integer("SETPOINT_X", 3, least=1), "0", "at least 1"),
        (lambda: env.seconds("SETPOINT_X", 3), "soon", "number of seconds"),
        (lambda: env.seconds("SETPOINT_X", 3), "-1", "more than 0"),
        (lambda: env.seconds("SETPOINT_X", 3), "nan", "more than 0"),
        (lambda: env.metric_names("SETPOINT_X"), 'step"} or up{a="', "names of metrics"),
        (lambda: env.metric_names("SETPOINT_X"), "my-step", "names of metrics"),
        (lambda: env.metric_names("SETPOINT_X"), "1st_step", "names of metrics"),
        (lambda: env.metric_names("SETPOINT_X"), "good,a|b", "names of metrics"),
        (lambda: env.metric_names("SETPOINT_X"), ",".join(f"s{n}" for n in range(21)), "at most 20"),
        (lambda: env.database("SETPOINT_X", ""), "mysql://x", "sqlite:// or postgresql://"),
        (lambda: env.database("SETPOINT_X", ""), "postgresql://u:p@h:port/x", "port"),
        (lambda: env.database("SETPOINT_X", ""), "postgresql://u:p@h/x?sslmod=require", "sslmod"),
        (lambda: env.database("SETPOINT_X", ""), "postgresql://u:p@h", "database"),
        (lambda: env.database("SETPOINT_X", ""), "sqlite:///x?mode=ro", "parameters"),
    ],
)
def test_a_malformed_value_names_its_variable(monkeypatch: pytest.MonkeyPatch, read, value, complaint) -> None:
    monkeypatch.setenv("SETPOINT_X", value)
    with pytest.raises(env.BadEnvironment, match=f"SETPOINT_X.*{complaint}"):
        read()


@pytest.mark.parametrize(
    ("url", "master", "complaint"),
    [
        ("sentinel://s-1:26379/0;sentinel://s-2:26379/0", "", "SETPOINT_BROKER_MASTER must name the master"),
        ("sentinel://s-1:26379/0;redis://s-2:6379/0", "mymaster", "sentinel:// in each"),
        ("redis://one:6379/0;redis://two:6379/0", "", "sentinel:// in each"),
        ("sentinel://:pass-12345@s-1:26379/0;s-2:26379", "mymaster", "must begin with redis://"),
        ("redis://:pass-12345@:6379/0", "", "needs a host"),
        ("redis://:pass-12345@one:port/0", "", "needs a host"),
        ("redis://:pass-12345@one:99999/0", "", "needs a host"),
        ("http://user:pass-12345@one/", "", "must begin with redis://"),
        ("one:6379", "", "must begin with redis://"),
        ("None", "", "or be none"),
    ],
)
def test_a_broker_that_no_message_could_reach_is_refused_without_its_password(
    monkeypatch: pytest.MonkeyPatch, url: str, master: str, complaint: str
) -> None:
    monkeypatch.setenv("SETPOINT_BROKER_URL", url)
    monkeypatch.setenv("SETPOINT_BROKER_MASTER", master)
    with pytest.raises(env.BadEnvironment, match=re.escape(complaint)) as refused:
        env.broker("SETPOINT_BROKER_URL", "none", master="SETPOINT_BROKER_MASTER")
    assert "SETPOINT_BROKER_URL" in str(refused.value)
    assert "pass-12345" not in str(refused.value)


@pytest.mark.parametrize(
    ("url", "master"),
    [
        ("none", ""),
        ("redis://:p%40ss@redis:6379/0", ""),
        ("rediss://redis/1?ssl_cert_reqs=required", ""),
        ("redis://[::1]:6379/0", ""),
        ("sentinel://:p@s-1:26379/0;sentinel://:p@s-2:26379/0", "mymaster"),
        ("memory://localhost/", ""),
    ],
)
def test_a_broker_is_given_to_celery_as_it_is_written(monkeypatch: pytest.MonkeyPatch, url: str, master: str) -> None:
    monkeypatch.setenv("SETPOINT_BROKER_URL", url)
    monkeypatch.setenv("SETPOINT_BROKER_MASTER", master)
    assert env.broker("SETPOINT_BROKER_URL", "redis://elsewhere/0", master="SETPOINT_BROKER_MASTER") == url


def test_an_embedded_installation_makes_its_secret_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("SETPOINT_X", raising=False)
    made = env.secret("SETPOINT_X", tmp_path / "deep" / "x.key")
    assert len(made) >= 48
    assert (tmp_path / "deep" / "x.key").stat().st_mode & 0o777 == 0o600
    assert env.secret("SETPOINT_X", tmp_path / "deep" / "x.key") == made


def test_processes_that_must_agree_do_not_make_secrets_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SETPOINT_EMBEDDED", "false")
    with pytest.raises(env.BadEnvironment, match="SETPOINT_X"):
        env.secret("SETPOINT_X", tmp_path / "x.key")
    assert not (tmp_path / "x.key").exists()


def test_every_variable_that_a_test_reads_reaches_it() -> None:
    """tests.settings takes the rest away, and a switch of the suite that is always off looks as if all had passed."""
    root = Path(__file__).resolve().parents[1]
    read = {
        name
        for path in root.rglob("*.py")
        if path != root / "settings.py"
        for name in re.findall(
            r"""os\.(?:environ\.get\(|environ\[|getenv\()"(SETPOINT_\w+)"(?!\] =)""", path.read_text()
        )
    }
    assert {"SETPOINT_ALL_CHARTS", "SETPOINT_CACHE"} <= read
    assert [name for name in sorted(read) if not name.startswith(KEPT)] == []


def test_tests_without_migrations_leave_no_database_to_copy(tmp_path: Path) -> None:
    """Tables that no migration made would be copied by the next run, which could not migrate them."""
    root = Path(__file__).resolve().parents[2]
    command = [sys.executable, "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", "--no-migrations"]
    environment = {**os.environ, "TMPDIR": str(tmp_path), "TIER": "fast"}
    ended = subprocess.run(
        [*command, "tests/accounts/test_filters.py"],
        cwd=root,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-2000:]
    assert not list(tmp_path.glob("setpoint-test-databases-*/*"))
