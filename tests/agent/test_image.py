"""The image holds what the agent needs and nothing else, checked without building it: files, command, limits.

The Dockerfile's COPY lines are carried out into a folder, and the entry point runs there, without the rest of the
repository and without site-packages. tests/full/deployment/test_images.py builds it and runs the image.
"""

from __future__ import annotations

import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys

import pytest

from agent.__main__ import DEADMAN_SECONDS
from agent.host import COMMAND_SECONDS
from contract import key_lists, names
from contract.nodetuning import Status
from tests.agent.stand_in import answering, token
from tests.agent.test_deploy import the

ROOT = pathlib.Path(__file__).parents[2]
LINES = [line.strip() for line in (ROOT / "deploy/agent.Dockerfile").read_text().splitlines()]
POD = the("DaemonSet", names.AGENT_DAEMONSET)["spec"]["template"]["spec"]
[CONTAINER] = POD["containers"]


def instructions(word: str) -> list[str]:
    return [line.removeprefix(f"{word} ") for line in LINES if line.startswith(f"{word} ")]


@pytest.fixture
def image(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder with what the Dockerfile copies, compiled as it says, and read-only as in the pod."""
    folder = tmp_path / "opt"
    folder.mkdir()
    for line in instructions("COPY"):
        source, target = line.split()
        shutil.copytree(ROOT / source, folder / target, ignore=shutil.ignore_patterns("__pycache__"))
    for line in instructions("RUN"):
        if line.startswith("python "):
            words = [sys.executable, *shlex.split(line)[1:]]
            subprocess.run(words, cwd=folder, check=True, env={}, timeout=60)
    return folder


def command(*options: str) -> list[str]:
    [entry] = [json.loads(line) for line in instructions("ENTRYPOINT")]
    assert entry[0] == "python"
    return [sys.executable, *entry[1:], *options]


def environment() -> dict[str, str]:
    return dict(pair.split("=") for line in instructions("ENV") for pair in line.split())


def test_the_agent_starts_from_the_copied_files_alone(image):
    ran = subprocess.run(
        command("--help"), cwd=image, env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert "--host-root (/host)" in ran.stdout


def test_everything_it_imports_is_the_standard_library_or_copied(image):
    program = (
        "import agent.__main__, subprocess, sys\n"
        "for module in list(sys.modules.values()): print(getattr(module, '__file__', None) or '')"
    )
    flags = [flag for flag in command() if flag in ("-S", "-OO")]
    ran = subprocess.run(
        [sys.executable, *flags, "-c", program],
        cwd=image,
        env={},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    files = [pathlib.Path(line) for line in ran.stdout.splitlines() if line]
    library = pathlib.Path(os.__file__).resolve().parent
    outside = [f for f in files if image not in f.parents and library not in f.resolve().parents]
    assert [f for f in files if "site-packages" in f.parts] == outside == []
    heavy = {"argparse", "asyncio", "logging", "typing_extensions", "urllib.request", "unittest", "django"}
    assert not {f.stem for f in files} & heavy


@pytest.fixture
def api_server():
    with answering() as server:
        yield server


def start(image, tmp_path, api_server, *more, program=None):
    (tmp_path / "token").write_text(token())
    options = {
        "server": f"http://127.0.0.1:{api_server.server_address[1]}",
        "token-file": tmp_path / "token",
        "ca-file": "",
        "host-root": tmp_path / "root",
        "journal": tmp_path / "journal",
        "init-pid": os.getpid(),
    }
    given = [f"--{name}={value}" for name, value in options.items()]
    argv = command(*given, *more)
    if program:
        at = argv.index("-m")
        argv = [*argv[:at], "-c", program, *argv[at + 2 :]]
    with (tmp_path / "log").open("ab") as log:
        return subprocess.Popen(argv, cwd=image, env=environment() | {"NODE_NAME": "node-1"}, stderr=log)


def test_it_observes_and_reports_from_the_copied_files_alone(image, tmp_path, api_server):
    process = start(image, tmp_path, api_server)
    try:
        assert api_server.RequestHandlerClass.has_written.wait(30), (tmp_path / "log").read_text()
        status = api_server.RequestHandlerClass.written["status"]
        swappiness = pathlib.Path("/proc/sys/vm/swappiness").read_text().strip()
        assert Status.from_json(status).observed["vm.swappiness"] == swappiness
        assert (status["observedGeneration"], status["nodeUID"]) == (1, "uid-1")
    finally:
        process.terminate()
        assert process.wait(20) == 0


def test_a_loop_that_hangs_is_ended_by_the_kernel(image, tmp_path, api_server):
    hang = (
        "import agent.__main__ as a, agent.loop as l, sys, threading; a.DEADMAN_SECONDS = 1; "
        "l.Loop._tick = lambda self: threading.Event().wait(); sys.exit(a.main(sys.argv[1:]))"
    )
    process = start(image, tmp_path, api_server, program=hang)
    assert process.wait(20) == -signal.SIGALRM


def test_the_alarm_outlasts_the_longest_step():
    """A step may load every module and tell grubby every argument, each as slowly as a command may be."""
    assert COMMAND_SECONDS * len(key_lists.ALLOWED_MODULES) <= DEADMAN_SECONDS


def test_resources_leave_room_and_no_more():
    assert CONTAINER["resources"] == {"requests": {"cpu": "5m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}}


def test_the_pod_is_what_the_agent_s_own_checks_ask_for():
    assert (POD["hostNetwork"], POD["hostPID"], POD["hostIPC"]) == (True, True, True)
    assert CONTAINER["securityContext"] == {"privileged": True, "runAsUser": 0, "readOnlyRootFilesystem": True}
    assert not {"livenessProbe", "readinessProbe", "startupProbe"} & set(CONTAINER)  # the agent serves nothing
    mounts = {m["mountPath"]: m.get("readOnly", False) for m in CONTAINER["volumeMounts"]}
    given = dict(zip(CONTAINER["args"][::2], CONTAINER["args"][1::2], strict=True))
    assert mounts[given["--host-root"]] is True
    assert mounts[f"{given['--host-root']}/etc"] is False  # the files that outlive a boot
    assert mounts[given["--journal"]] is False
    paths = {v["name"]: v["hostPath"]["path"] for v in POD["volumes"]}
    assert paths == {"host": "/", "etc": "/etc", "journal": "/var/lib/setpoint"}


def test_the_image_is_the_one_that_the_dockerfile_builds_and_of_the_agent_s_version():
    from agent import VERSION

    assert CONTAINER["image"] == f"setpoint-agent:{VERSION}"
    assert any(f"-t {CONTAINER['image']} " in line for line in LINES)
