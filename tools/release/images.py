"""The images of a release, built by buildah from what a commit holds: nothing of the working tree, and no time but the
commit's, so that two builds on the same base have the same digest.
"""

from __future__ import annotations

import io
import re
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tools.release.errors import ReleaseRefused
from tools.release.layout import Layout

DOCKERFILES = {
    "setpoint-agent": "deploy/agent.Dockerfile",
    "setpoint-server": "deploy/server.Dockerfile",
    "setpoint-backup": "deploy/backup.Dockerfile",
}
"""Image → its Dockerfile, in an order in which each finds the one that it is built on."""
SECONDS = 3600
"""A judgment: packages over a slow line."""
BASE = re.compile(r"^ARG BASE=(\S+)$", re.MULTILINE)


def base(root: Path) -> str:
    """Return the reference of the base, with its digest, on which all images are built. Raises ReleaseRefused."""
    named = {
        reference
        for dockerfile in DOCKERFILES.values()
        for reference in BASE.findall((root / dockerfile).read_text(encoding="utf-8"))
    }
    if len(named) != 1:
        raise ReleaseRefused(f"The Dockerfiles name more than one base: {', '.join(sorted(named))}.")
    reference = named.pop()
    if not re.fullmatch(r"[\w./:-]+@sha256:[0-9a-f]{64}", reference):
        raise ReleaseRefused(f"The base {reference} has no digest: name@sha256:….")
    return str(reference)


def arguments(dockerfile: str, context: Path, epoch: int, labels: Mapping[str, str]) -> list[str]:
    """Return what `buildah build` is given, but for the tag: by the release, and by the tests of what it builds."""
    return [
        "--isolation=chroot",
        "--network=host",
        "--format=oci",
        "--no-cache",
        f"--timestamp={epoch}",
        *(f"--label={name}={value}" for name, value in sorted(labels.items())),
        f"--file={context / dockerfile}",
        str(context),
    ]


def labels(version: str, commit: str, source: str) -> dict[str, str]:
    """Return the labels of a release's images, by the names of the OCI image specification."""
    given = {"version": version, "revision": commit, "source": source, "licenses": "Apache-2.0"}
    return {f"org.opencontainers.image.{name}": value for name, value in given.items() if value}


@contextmanager
def exported(root: Path, commit: str) -> Iterator[Path]:
    """Yield a folder with a commit's files, with modes that do not depend on this machine's umask."""
    content = _ran("git", "-C", str(root), "-c", "tar.umask=0022", "archive", "--format=tar", commit)
    with tempfile.TemporaryDirectory(prefix="setpoint-release-") as name:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            archive.extractall(name, filter="tar")
        yield Path(name)


def commit_of(root: Path) -> tuple[str, int]:
    """Return the commit that is checked out, and its time in seconds since 1970."""
    commit, at = _ran("git", "-C", str(root), "log", "-1", "--format=%H %ct").decode().split()
    return commit, int(at)


def build(root: Path, target: Path, version: str, *, source: str = "", options: Sequence[str] = ()) -> list[Layout]:
    """Build all images into OCI layouts below a folder, each under its name. Raises ReleaseRefused."""
    commit, epoch = commit_of(root)
    target.mkdir(parents=True, exist_ok=True)
    layouts = []
    with exported(root, commit) as context:
        for name, dockerfile in DOCKERFILES.items():
            tag = f"localhost/{name}:{version}"
            given = arguments(dockerfile, context, epoch, labels(version, commit, source))
            server = [f"--build-arg=SERVER=localhost/setpoint-server:{version}"] * (name == "setpoint-backup")
            _ran("buildah", "build", *options, *server, f"--tag={tag}", *given)
            folder = target / name
            if folder.exists():
                raise ReleaseRefused(f"{folder} exists already: name an empty folder.")
            _ran("buildah", "push", "--quiet", tag, f"oci:{folder}:{version}")
            layouts.append(Layout.opened(folder))
    return layouts


def _ran(*words: str) -> bytes:
    """Return the program's output. Raises ReleaseRefused with its last lines."""
    try:
        done = subprocess.run(words, capture_output=True, check=False, timeout=SECONDS)
    except FileNotFoundError as error:
        raise ReleaseRefused(f"{words[0]} is not installed.") from error
    if done.returncode:
        last = (done.stdout[-2000:] + done.stderr[-2000:]).decode(errors="replace")
        raise ReleaseRefused(f"{' '.join(words[:3])}… ended with {done.returncode}: {last}")
    return done.stdout
