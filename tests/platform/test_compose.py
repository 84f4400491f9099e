"""Everything that docker-compose.yml and the Dockerfile name exists.

tests/full/deployment/test_images.py builds and runs it.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from celery.bin.celery import celery as celery_command
from click.testing import CliRunner
from django.conf import settings
from django.core.management import get_commands

ROOT = Path(__file__).resolve().parents[2]
COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES: dict[str, Any] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if "build" in service}
READERS = {
    "broker",
    "text",
    "flag",
    "integer",
    "seconds",
    "words",
    "some_of",
    "networks",
    "one_of",
    "prices",
    "metric_names",
    "database",
    "pooler",
    "secret",
    "get",
}


@cache
def variables_read() -> frozenset[str]:
    """Every SETPOINT_* name that product code reads, through config.env or from os.environ."""
    names = set()
    for path in (ROOT / "config").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in READERS):
                continue
            name = node.args[0] if node.args else None
            if isinstance(name, ast.Constant) and str(name.value).startswith("SETPOINT_"):
                names.add(str(name.value))
    return frozenset(names)


def new_environment() -> ModuleType:
    path = ROOT / "deploy" / "new_environment.py"
    spec = importlib.util.spec_from_file_location("new_environment", path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def parsed(content: str) -> dict[str, str]:
    lines = [line for line in content.splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def test_the_processes_of_the_design_are_all_there() -> None:
    assert {"web", "worker", "helm", "gpus", "beat", "watch"} <= set(OURS)
    assert {"postgres", "redis"} <= set(SERVICES)


def test_every_process_that_stays_has_a_health_check() -> None:
    without = {name for name, service in SERVICES.items() if "healthcheck" not in service}
    assert without == {"migrate", "library"}, "these end"


@pytest.mark.parametrize("name", OURS)
def test_a_service_starts_a_command_that_exists(name: str) -> None:
    program, *arguments = SERVICES[name]["command"]
    if program == "python":
        assert arguments[0] == "manage.py"
        assert arguments[1] in get_commands()
    elif program == "gunicorn":
        assert arguments[0].replace(":", ".") == settings.WSGI_APPLICATION
        # A proxy has to close first, else its next request meets a connection that is just being closed: a write is
        # then answered 502, for no proxy sends it again. nginx keeps one to its upstream for 60 s.
        assert "--keep-alive=75" in arguments
    else:
        assert (program, arguments[0]) == ("celery", "--app=config")
        # --help makes the program read every option, complain about those it does not know, and start nothing.
        shown = CliRunner().invoke(celery_command, [*arguments, "--help"])
        assert shown.exit_code == 0, shown.output


def test_the_workers_serve_every_queue_that_tasks_use() -> None:
    served = {
        queue
        for service in OURS.values()
        for word in service["command"]
        if word.startswith("--queues=")
        for queue in word.removeprefix("--queues=").split(",")
    }
    routes = getattr(settings, "CELERY_TASK_ROUTES", {})
    assert served >= {"celery", "helm", "gpus"} | {route["queue"] for route in routes.values()}


def test_every_variable_that_compose_gives_is_one_that_is_read() -> None:
    given = {name for service in OURS.values() for name in service.get("environment", {})}
    given |= set(parsed(new_environment().files()["setpoint.env"]))
    given |= set(parsed(new_environment().files()["helm.env"]))
    given |= set(parsed(new_environment().files()["owner.env"]))
    assert given
    assert given <= variables_read()


def test_every_variable_is_documented_and_every_documented_variable_is_read() -> None:
    documented = set(
        re.findall(r"^\| `(SETPOINT_[A-Z_]+)`", (ROOT / "docs" / "operating.md").read_text(), re.MULTILINE)
    )
    assert documented == variables_read()


def test_the_generated_environment_is_one_that_the_server_accepts(tmp_path: Path) -> None:
    given = parsed(new_environment().files()["setpoint.env"])
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("SETPOINT_", "DJANGO_"))}
    done = subprocess.run(
        [sys.executable, "manage.py", "check", "--fail-level=WARNING"],
        cwd=ROOT,
        env={**clean, **given, "SETPOINT_EMBEDDED": "false", "SETPOINT_VAR": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert not list(tmp_path.iterdir()), "with every key given, nothing is made up on disk"


def test_the_database_is_made_with_the_owners_password_and_the_owner_knows_the_applications() -> None:
    files = new_environment().files()
    password = parsed(files["postgres.env"])["POSTGRES_PASSWORD"]
    assert len(password) >= 32
    owner = parsed(files["owner.env"])
    assert owner["SETPOINT_DATABASE_URL"] == f"postgresql://setpoint:{password}@postgres:5432/setpoint"
    assert owner["SETPOINT_APPLICATION_DATABASE_URL"] == parsed(files["setpoint.env"])["SETPOINT_DATABASE_URL"]
    assert files != new_environment().files()


def test_only_what_migrates_is_given_the_role_that_owns_the_tables() -> None:
    """A process with that role could drop the triggers and change the audit record."""
    has_it = {name for name, service in SERVICES.items() if "deploy/owner.env" in env_files(service)}
    assert has_it == {"migrate"}
    assert env_files(SERVICES["migrate"])[-1] == "deploy/owner.env", "the last file's DATABASE_URL counts"
    files = new_environment().files()
    password = parsed(files["postgres.env"])["POSTGRES_PASSWORD"]
    assert [name for name, text in files.items() if password in text] == ["owner.env", "postgres.env"]


def env_files(service: dict[str, Any]) -> list[str]:
    return [file if isinstance(file, str) else file["path"] for file in service.get("env_file", ())]


def test_only_the_worker_of_helm_is_given_the_keys_of_helms_credential() -> None:
    """A web process that is broken into has the database and its keys: they must not open the installing identity."""
    has_them = {name for name, service in SERVICES.items() if "deploy/helm.env" in env_files(service)}
    assert has_them == {"helm"}
    files = new_environment().files()
    (key,) = parsed(files["helm.env"]).items()
    assert key[0] == "SETPOINT_HELM_CREDENTIAL_KEYS"
    assert not any(key[0] in text or key[1] in text for name, text in files.items() if name != "helm.env")


def test_only_the_web_process_is_published_and_only_on_loopback() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if service.get("ports")}
    assert set(published) == {"web"}
    assert all(port.startswith("127.0.0.1:") for port in published["web"])
    assert COMPOSE["networks"]["inside"]["internal"] is True
    assert SERVICES["postgres"]["networks"] == SERVICES["redis"]["networks"] == ["inside"]


@pytest.mark.parametrize("name", OURS)
def test_our_containers_have_no_more_rights_than_they_need(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "no-new-privileges:true" in service["security_opt"]


def test_every_scratch_folder_is_a_path_of_the_container_and_the_servers_own_is_closed() -> None:
    """An engine refuses any other value; YAML divides an unquoted value in brackets at its commas."""
    for name, service in SERVICES.items():
        paths = [text.partition(":") for text in service.get("tmpfs", ())]
        assert all(path.startswith("/") for path, _, _ in paths), name
        if name in OURS:
            assert ("/var/lib/setpoint", "mode=0700,uid=10001") in {(path, options) for path, _, options in paths}


def test_the_image_holds_every_room_and_neither_tests_nor_simulation() -> None:
    text = (ROOT / "deploy" / "server.Dockerfile").read_text()
    copied = set(re.findall(r"^COPY (?:--from=\S+ )?(\S+) \S+$", text, re.MULTILINE))
    rooms = {app for app in settings.INSTALLED_APPS if (ROOT / app.partition(".")[0]).is_dir()}
    assert rooms | {"contract", "templates", "static"} <= copied
    assert not copied & {"tests", "simfleet", "bench", "."}
    assert re.search(r"^USER 10001$", text, re.MULTILINE)
    there = {str(path.relative_to(ROOT)) for path in [*ROOT.iterdir(), *(ROOT / "requirements").iterdir()]}
    assert {path for path in copied if not path.startswith("/")} - {"LICENSE*"} <= there
