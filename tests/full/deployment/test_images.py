"""Both Dockerfiles are built, and what they hold runs: each process of docker-compose.yml, as it says, and the agent;
and a rollout of a setting and a component, on a real control plane.

Nothing of this checkout is on the path of what runs here, and nothing of the tests' environment.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from importlib import metadata
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema_rs
import psycopg
import pytest
from packaging.utils import canonicalize_name

from contract import names
from contract.nodetuning import Status
from tests.agent.stand_in import answering, token
from tests.agent.test_deploy import the
from tests.controlplane.admin import Admin
from tests.controlplane.plane import Plane
from tests.full.harness.containers import Container, bind, user
from tests.full.harness.equipping import equipped
from tests.full.harness.helm_releases import Releases
from tests.full.harness.images import EPOCH, ROOT, Image, Images, ran
from tests.full.harness.kwok_fleet import KwokFleet
from tests.full.harness.servers import Postgres, Redis
from tests.full.harness.shipped import Shipped
from tests.full.harness.site import SETTINGS, Site
from tools.release.__main__ import bill

pytestmark = pytest.mark.full

PATIENCE_SECONDS = 90.0
PROCESSES = ("web", "worker", "helm", "gpus", "beat", "watch")


@pytest.fixture(scope="module")
def images() -> Iterator[Images]:
    if os.geteuid() != 0:
        pytest.skip("building images without a daemon needs root")
    with Images() as made:
        yield made


@pytest.fixture(scope="module")
def server(images: Images) -> Image:
    return images.build("deploy/server.Dockerfile")


@pytest.fixture(scope="module")
def site(
    server: Image, deployed: Plane, cluster_admin: Admin, empty_postgres: Postgres, redis_server: Redis
) -> Iterator[Site]:
    """A Setpoint of containers of the image, with a cluster; its processes are another role of the database."""
    owner = empty_postgres.url
    application = owner.replace("//setpoint@", "//setpoint_app@")
    with Shipped(server, application, redis_server.url, SETTINGS, owner_url=owner) as installation:
        opened = Site(deployed, cluster_admin, installation)
        try:
            opened.open()
            installation.manage("load_library")
            installation.start("gpus")  # beside what a rollout needs
            with equipped(opened, deployed, cluster_admin):
                yield opened
        finally:
            opened.close()


@pytest.fixture
def setpoint(site: Site) -> Shipped:
    assert isinstance(site.setpoint, Shipped)
    return site.setpoint


def eventually(what: Callable[[], object], says: Callable[[], str]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not what():
        assert time.monotonic() < deadline, says()
        time.sleep(0.5)


def got(setpoint: Shipped, path: str) -> tuple[int, str, str]:
    """Status, type and text."""
    connection = http.client.HTTPConnection("127.0.0.1", setpoint.port, timeout=20)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type", ""), answer.read().decode(errors="replace")
    finally:
        connection.close()


def test_each_process_of_compose_starts_from_the_image_and_all_is_ready(setpoint: Shipped) -> None:
    def is_whole() -> bool:
        return json.loads(got(setpoint, "/readyz")[2])["status"] == "ready"

    eventually(is_whole, lambda: got(setpoint, "/readyz")[2] + "".join(map(setpoint.log, PROCESSES)))
    stopped = [name for name in PROCESSES if not setpoint.is_running(name)]
    assert not stopped, "\n".join(setpoint.log(name) for name in stopped)


def test_pages_and_collected_files_are_served(setpoint: Shipped) -> None:
    status, kind, page = got(setpoint, "/login/")
    assert (status, kind.partition(";")[0]) == (200, "text/html")
    files = {word.split('"')[0] for word in page.split('"/static/')[1:]}
    assert any("tabler" in name for name in files), "what npm brings is in the image, too"
    for name in files:
        status, kind, text = got(setpoint, f"/static/{name}")
        assert status == 200, name
        assert text


@pytest.mark.parametrize("name", PROCESSES)
def test_the_health_check_of_compose_can_run_and_says_yes(setpoint: Shipped, name: str) -> None:
    eventually(lambda: setpoint.health(name).returncode == 0, lambda: str(setpoint.health(name)))


@pytest.mark.every_case
@pytest.mark.parametrize("name", PROCESSES)
def test_no_process_is_root_or_can_become_it_or_write_outside_its_scratch(setpoint: Shipped, name: str) -> None:
    pids = setpoint.containers[name].pids()
    assert pids
    for pid in pids:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
        assert set(status["Uid"].split()) == set(status["Gid"].split()) == {"10001"}
        assert {int(status[f"Cap{kind}"], 16) for kind in ("Prm", "Eff", "Bnd")} == {0}
        assert status["NoNewPrivs"] == "1"
    tried = setpoint.containers[name].execute(
        "sh", "-c", "touch /opt/setpoint/app/x; touch /x; touch /tmp/x /var/lib/setpoint/x && echo scratch"
    )
    assert tried.stdout == "scratch\n", tried.stderr
    assert tried.stderr.count("Read-only file system") == 2, tried.stderr


def test_a_rollout_of_a_setting_and_a_component_runs_from_the_images_and_back(
    site: Site, deployed: Plane, make_fleet: Callable[..., KwokFleet]
) -> None:
    """Each process does its part of it, with nothing but what the image holds: a package that only the tests'
    environment has, a file that no COPY names and a folder that must be written to would show here."""
    nodes = ("image-1", "image-2")
    make_fleet("images", *nodes)
    before = {name: site.observed(name, "vm.swappiness") for name in nodes}
    volcano = {"basic": {"image_registry": "registry.example/images"}}
    wanted = f"components:\n  volcano:\n    values: {json.dumps(volcano)}\n"
    revision = site.revision({"vm.swappiness": "23"}, extra=wanted)
    rollout = site.rollout_of(site.pool(pool="images"), revision, canary=0, batch="100%")
    site.until(rollout, "succeeded", seconds=PATIENCE_SECONDS * 2)
    assert {site.observed(name, "vm.swappiness") for name in nodes} == {"23"}
    releases = Releases(deployed)
    assert releases.values("volcano") == volcano

    site.act(rollout, "revert")
    site.until(rollout, "reverted", seconds=PATIENCE_SECONDS * 2)
    assert {name: site.observed(name, "vm.swappiness") for name in nodes} == before
    assert releases.values("volcano") is None
    site.judge().must_hold()


def test_the_worker_of_helm_has_a_helm(setpoint: Shipped) -> None:
    completed = setpoint.containers["helm"].execute(
        "python", "-c", "import django; django.setup(); from components.helm import client; print(client.program())"
    )
    assert completed.returncode == 0, completed.stderr
    assert "/opt/setpoint/venv/bin/helm" in completed.stdout


def test_the_servers_image_holds_no_key_no_compiler_and_nothing_of_the_tests(server: Image) -> None:
    app = server.root / "opt/setpoint/app"
    assert user(server)["uid"] == 10001
    assert not any(name.startswith("SETPOINT_") and name.partition("=")[0].endswith(("KEY", "KEYS", "PEPPER", "URL"))
                   for name in server.config["Env"])  # fmt: skip
    kept = {path.name for path in app.rglob("*") if path.suffix in (".env", ".key", ".pepper", ".sqlite3", ".pem")}
    assert kept == set()
    assert not {path.name for path in app.iterdir()} & {"tests", "simfleet", "bench", "var", ".git", "node_modules"}
    for folder in server.config["Env"][0].partition("=")[2].split(":"):
        there = {path.name for path in (server.root / folder.lstrip("/")).glob("*")}
        assert not there & {"cc", "gcc", "c++", "make", "node", "npm", "git", "curl", "wget"}, folder
    own = [path for path in (server.root / "opt/setpoint").rglob("*") if not path.is_symlink() and path.stat().st_uid]
    assert own == [], "the process could change what it runs"


def test_the_product_is_compiled_in_the_image_for_it_cannot_be_later(server: Image) -> None:
    sources = [path for path in (server.root / "opt/setpoint/app").rglob("*.py") if "migrations" not in path.parts]
    assert sources
    without = [path.name for path in sources if not list((path.parent / "__pycache__").glob(f"{path.stem}.*.pyc"))]
    assert without == []


@pytest.mark.long
def test_backup_and_restore_run_from_their_image_with_a_client_newer_than_the_server(
    images: Images, server: Image, setpoint: Shipped, empty_postgres: Postgres, tmp_path: Path
) -> None:
    """A read-only root, no rights, and the script of pg_restore 17 on the server of this machine."""
    image = images.build("deploy/backup.Dockerfile", on="SERVER=localhost/server")
    assert user(image)["uid"] == 10001
    folder = tmp_path / "backups"
    folder.mkdir()
    os.chown(folder, 10001, 10001)
    before = {key: value for key, value in setpoint._environment("migrate").items() if key.startswith("SETPOINT_")}
    del before["SETPOINT_VAR"]
    with psycopg.connect(empty_postgres.url, autocommit=True) as connection:
        connection.execute("CREATE DATABASE restored")
        users = connection.execute("SELECT count(*) FROM accounts_user").fetchone()
    urls = {name: f"{before[name].rpartition('/')[0]}/restored" for name in before if name.endswith("DATABASE_URL")}

    def run(given: dict[str, str], *words: str) -> None:
        service = {**setpoint.services["migrate"], "command": ["python", "manage.py", *words]}
        container = Container(image, service, given, mounts=[bind(folder, "/backups", "rw")])
        try:
            process = container.run(subprocess.PIPE)
            complaint = process.communicate(timeout=300)[1]
            assert process.returncode == 0, complaint.decode()
        finally:
            container.close()

    run(before, "backup", "/backups/b")
    run(before | urls, "restore", "/backups/b")
    with psycopg.connect(f"{empty_postgres.url.rpartition('/')[0]}/restored") as connection:
        assert connection.execute("SELECT count(*) FROM accounts_user").fetchone() == users
        reasons = connection.execute("SELECT reason FROM jobs_freeze").fetchall()
    assert any("Restored" in reason for (reason,) in reasons)


# ── The agent ─────────────────────────────────────────────────────────────────────────────────────────────────────────
AS_PRIVILEGED = ("CAP_DAC_OVERRIDE", "CAP_SYS_ADMIN", "CAP_SYS_CHROOT", "CAP_SYS_PTRACE")
"""What of a privileged container's rights the agent uses, and a machine that builds images has to give."""


@pytest.fixture(scope="module")
def agent(images: Images) -> Image:
    return images.build("deploy/agent.Dockerfile")


def test_the_agent_reads_this_kernel_and_answers_as_the_manifest_starts_it(agent: Image, tmp_path: Path) -> None:
    """Its container is the node as far as it sees: first process, namespaces, and a host folder of its own."""
    pod = the("DaemonSet", names.AGENT_DAEMONSET)["spec"]["template"]["spec"]["containers"][0]
    for folder in ("host/etc", "journal", "account"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "account/token").write_text(token())
    with answering() as api:
        service = {
            "read_only": pod["securityContext"]["readOnlyRootFilesystem"],
            "command": [*pod["args"], f"--server=http://127.0.0.1:{api.server_address[1]}", "--ca-file="],
        }
        mounts = [
            bind(tmp_path / "host", "/host"),
            bind(tmp_path / "host/etc", "/host/etc", "rw"),
            bind(tmp_path / "journal", "/var/lib/setpoint", "rw"),
            bind(tmp_path / "account", "/var/run/secrets/kubernetes.io/serviceaccount"),
        ]
        given = {"NODE_NAME": "node-1"}
        container = Container(agent, service, given, mounts=mounts, capabilities=AS_PRIVILEGED)
        try:
            with (tmp_path / "log").open("ab") as log:
                process = container.run(log)
            handler: Any = api.RequestHandlerClass
            assert handler.has_written.wait(PATIENCE_SECONDS), (tmp_path / "log").read_text()
            status = Status.from_json(handler.written["status"])
            here = Path("/proc/sys/net/core/somaxconn").read_text().strip()
            assert status.observed["net.core.somaxconn"] == here
            assert status.node_uid == "uid-1"
            assert (tmp_path / "journal/lock").exists()
            container.signal("TERM")
            assert process.wait(PATIENCE_SECONDS) == 0, (tmp_path / "log").read_text()
        finally:
            container.close()


def test_the_agents_image_holds_its_two_folders_and_the_standard_library(agent: Image) -> None:
    assert {path.name for path in (agent.root / "opt/setpoint").iterdir()} == {"agent", "contract"}
    assert not list((agent.root / "opt").rglob("site-packages"))
    assert (agent.root / "usr/bin/nsenter").exists()


# ── What a release says of them ───────────────────────────────────────────────────────────────────────────────────────
UNCHECKED_HASH = 0b01
"""PEP 552: compiled by the source's content, and not compared with it again."""


def cyclonedx_schema() -> Any:
    """Return CycloneDX's schema in another implementation than the one that the tool checks with."""
    schemas = {
        kind: json.loads((files("cyclonedx.schema._res") / f"{kind}.SNAPSHOT.schema.json").read_text())
        for kind in ("bom-1.6", "spdx", "jsf-0.82")
    }
    beside = schemas["bom-1.6"]["$id"].rpartition("/")[0]
    registry = jsonschema_rs.Registry(
        [(f"{beside}/{kind}.SNAPSHOT.schema.json", schema) for kind, schema in schemas.items() if kind != "bom-1.6"]
    )
    return jsonschema_rs.validator_for(schemas["bom-1.6"], registry=registry)


def components(document: dict[str, Any], kind: str) -> list[tuple[str, str]]:
    held = [each for each in document["components"] if each["purl"].startswith(f"pkg:{kind}/")]
    return sorted((each["name"], each["version"]) for each in held)


def installed_by_debian(image: Image) -> list[tuple[str, str]]:
    shown = "${db:Status-Status} ${Package} ${Version}\n"
    lines = ran("dpkg-query", f"--admindir={image.root}/var/lib/dpkg", f"--showformat={shown}", "--show").splitlines()
    return sorted((name, version) for status, name, version in map(str.split, lines) if status == "installed")


def installed_for_python(image: Image) -> list[tuple[str, str]]:
    folders = [path for name in ("site-packages", "dist-packages") for path in image.root.rglob(name)]
    held = metadata.distributions(path=[str(path) for path in folders if path.is_dir()])
    return sorted((canonicalize_name(each.name), each.version) for each in held)


@pytest.mark.long
@pytest.mark.parametrize("name", ["server", "agent"])
def test_the_bill_of_materials_lists_what_the_image_holds_and_nothing_else(
    name: str, images: Images, request: pytest.FixtureRequest
) -> None:
    image: Image = request.getfixturevalue(name)
    layout = images.layout(name)
    document = json.loads(bill(layout.folder))
    cyclonedx_schema().validate(document)
    assert document["metadata"]["component"]["purl"].startswith(f"pkg:oci/setpoint-{name}@sha256")
    assert layout.digest.partition(":")[2] in json.dumps(document["metadata"])
    assert len(installed_by_debian(image)) > 50
    assert components(document, "deb") == installed_by_debian(image)
    assert components(document, "pypi") == installed_for_python(image)
    vendored = {path.name for path in image.root.glob("opt/setpoint/app/static/vendor/*")}
    assert len(components(document, "npm")) == len(vendored) == (2 if name == "server" else 0)
    lock = (ROOT / "requirements/base.txt").read_text()
    own = [each for each in document["components"] if "/opt/setpoint/venv/" in json.dumps(each.get("properties"))]
    assert bool(own) == (name == "server")
    for each in own:
        (reference,) = each["externalReferences"]
        assert reference["hashes"], each["name"]
        assert all(f"--hash=sha256:{value['content']}" in lock for value in reference["hashes"]), each["name"]
    assert bill(layout.folder) == json.dumps(document, indent=1) + "\n", "the same image, the same bytes"


@pytest.mark.parametrize("name", ["server", "agent"])
def test_code_accounts_and_times_in_an_image_are_those_of_the_commit(name: str, request: pytest.FixtureRequest) -> None:
    """Check three things that differed between builds. Only a second build shows all: for the agent
    test_two_builds_of_the_agent_are_one, for the server the release workflow.
    """
    image: Image = request.getfixturevalue(name)
    compiled = list((image.root / "opt/setpoint").rglob("*.pyc"))
    assert compiled
    for path in compiled:
        assert int.from_bytes(path.read_bytes()[4:8], "little") == UNCHECKED_HASH, path
    own = [path for path in (image.root / "opt/setpoint").rglob("*") if not path.is_symlink()]
    assert {path.stat().st_mtime for path in own} == {EPOCH}
    assert "setpoint" not in (image.root / "etc/shadow").read_text(), "a line there has the day"


@pytest.mark.long
def test_two_builds_of_the_agent_are_one(images: Images, agent: Image, tmp_path: Path) -> None:
    """Build from another folder, at another time, from files with other times."""
    for name in ("agent", "contract", "deploy/agent.Dockerfile"):
        source, target = ROOT / name, tmp_path / "elsewhere" / name
        if source.is_dir():
            shutil.copytree(source, target, copy_function=shutil.copyfile, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            target.parent.mkdir(parents=True)
            shutil.copyfile(source, target)
    images.make("again", "deploy/agent.Dockerfile", tmp_path / "elsewhere")
    assert images.layout("again").digest == images.layout("agent").digest


# ── Last: each is ended ───────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("name", [*reversed(PROCESSES)])
def test_sigterm_ends_the_process_although_it_is_the_first_of_its_container(setpoint: Shipped, name: str) -> None:
    status = setpoint.stop(name)
    assert status in (0, 143), f"{status}: {setpoint.log(name)}"  # 137 would be: patience ran out
    setpoint.start(name)  # as an orchestrator does; and the fixtures stop it once more
