"""The chart's backups: when they run, with which image and role, and what they remove."""

from __future__ import annotations

import os
import signal
import subprocess
from contextlib import suppress
from pathlib import Path

import pytest

from contract.names import RELEASE
from tests.platform.chart.rendering import CHART, of_kind, rendered, run, template
from tests.platform.chart.value_sets import MINIMAL

WAITS = """#!/bin/sh
trap 'echo ended; exit 1' TERM
echo started
for tenth in $(seq 1200); do sleep 0.1; done
"""
STUB = """#!/bin/sh
echo "$@" >> "$LOG"
[ -n "$FAILS" ] && exit 1
echo new > "$3"
"""


def test_a_backup_is_off_until_it_has_somewhere_to_go() -> None:
    assert not of_kind(rendered("minimal"), "CronJob")
    done = run("template", "x", str(CHART), values={**MINIMAL, "backup": {"enabled": True}})
    assert done.returncode
    assert "backup.claim is required" in done.stderr


@pytest.mark.parametrize(
    "wrong",
    [{"keep": 0}, {"schedule": "every day"}, {"schedule": ""}, {"digest": "latest"}, {"claims": "x"}, {"claim": "A b"}],
    ids=str,
)
def test_wrong_values_are_refused_by_name(wrong: dict[str, object]) -> None:
    done = run("template", "x", str(CHART), values={**MINIMAL, "backup": {"enabled": True, "claim": "c", **wrong}})
    assert done.returncode
    assert next(iter(wrong)) in done.stderr


def test_two_never_run_at_once_and_the_image_is_the_one_with_pg_dump() -> None:
    (job,) = of_kind(rendered("highly-available"), "CronJob").values()
    assert job["spec"]["concurrencyPolicy"] == "Forbid"
    assert job["spec"]["timeZone"] == "Etc/UTC"
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"setpoint-backup:{RELEASE}"
    given = {"registry": "registry.example/a/"}
    digest = f"sha256:{'0' * 64}"
    values = {**MINIMAL, "image": given, "backup": {"enabled": True, "claim": "c", "digest": digest}}
    (job,) = of_kind(template(values), "CronJob").values()
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    assert container["image"] == f"registry.example/a/setpoint-backup@{digest}"


def in_a_folder(folder: Path, program: str) -> tuple[list[str], dict[str, str]]:
    """Return the pod's command and environment, with another folder and a stand-in for manage.py."""
    (folder / "backups").mkdir()
    (folder / "python").write_text(program)
    (folder / "python").chmod(0o755)
    (job,) = of_kind(rendered("highly-available"), "CronJob").values()
    (container,) = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]["containers"]
    shell, option, script, *arguments = container["command"]
    env = {"PATH": f"{folder}:{os.environ['PATH']}", "LOG": str(folder / "log")}
    return [shell, option, script.replace("/backups", str(folder / "backups")), *arguments], env


def test_sigterm_reaches_the_backup_and_removes_no_file(tmp_path: Path) -> None:
    command, env = in_a_folder(tmp_path, WAITS)
    old = [f"setpoint-202601{day:02}T021700Z.backup" for day in range(1, 33)]
    for name in old:
        (tmp_path / "backups" / name).touch()
    process = subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        assert process.stdout
        assert process.stdout.readline() == "started\n"
        process.terminate()
        assert process.communicate(timeout=60)[0] == "ended\n", "both have ended, or the pipe would be open"
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode
    assert sorted(path.name for path in (tmp_path / "backups").iterdir()) == old


@pytest.mark.parametrize("fails", [False, True])
def test_old_files_go_only_after_a_new_one_is_there(tmp_path: Path, fails: bool) -> None:
    command, env = in_a_folder(tmp_path, STUB)
    folder = tmp_path / "backups"
    old = [f"setpoint-202601{day:02}T021700Z.backup" for day in range(1, 33)]
    for name in [*old, "setpoint-key.txt", "by-hand.backup"]:
        (folder / name).touch()
    (folder / ".setpoint-backup-killed").mkdir()  # what SIGKILL left of the runs before: a folder, and a file
    (folder / ".setpoint-backup-killed/content").touch()
    (folder / ".setpoint-20260101T021700Z.backup-killed").touch()
    (folder / ".snapshot").mkdir()
    env["FAILS"] = "1" if fails else ""
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False, timeout=60)
    kept = sorted(path.name for path in folder.glob("setpoint-*.backup"))
    assert (folder / "setpoint-key.txt").exists()
    assert (folder / "by-hand.backup").exists()
    assert [path.name for path in folder.glob(".*")] == [".snapshot"]
    assert (tmp_path / "log").read_text().startswith("manage.py backup ")
    if fails:
        assert done.returncode
        assert kept == old
    else:
        assert done.returncode == 0, done.stderr
        assert len(kept) == 30
        assert kept[:-1] == old[-29:]
        assert (folder / kept[-1]).read_text() == "new\n"
