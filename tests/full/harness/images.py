"""Builds the Dockerfiles without a container engine's daemon, on a base image made from Debian's packages.

No registry of images is needed: mmdebstrap makes the base once for each machine, from Debian's archive; buildah builds
on it, with chroot for isolation. Its layers are overlays; where the file system below cannot hold those, as in a
container on an overlay of its own, they are plain folders. It needs root and the right to mount, nothing besides.
"""

from __future__ import annotations

import configparser
import fcntl
import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tools.release.images import arguments
from tools.release.layout import Layout

ROOT = Path(__file__).resolve().parents[3]
EPOCH = 1767225600
"""2026: the time of a commit, in the images that tests build."""
RELEASE = "trixie"
"""The release under python:3.13-slim, which the Dockerfiles name: the same Python on the same C library."""
PACKAGES = ("ca-certificates", "python-is-python3", "python3", "python3-pip", "python3-venv")
HOOKS = (
    'rm -f "$1"/usr/lib/python3*/EXTERNALLY-MANAGED',  # the official image's Python belongs to no distribution
    'touch "$1/etc/hosts" "$1/etc/resolv.conf"',  # an engine mounts its own over them
)
LEAVES_OUT = ("/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/man/*")
BUNDLE = "/etc/ssl/certs/ca-certificates.crt"
PIP_KEYS = ("index-url", "extra-index-url", "find-links", "proxy", "timeout", "trusted-host")
SECONDS = 1200
"""A judgment: packages over a slow line."""


class ImageFailed(RuntimeError):
    """A program that builds images is missing or failed; the message ends with what it printed last."""


@dataclass(frozen=True)
class Image:
    root: Path
    """Its file system, which nothing writes to."""
    config: Mapping[str, Any]
    """Env, User, Cmd, Entrypoint and WorkingDir, as the OCI image specification has them."""


class Images:
    """Images in a storage of their own, which leaving removes."""

    def __enter__(self) -> Images:
        self._folder = Path(tempfile.mkdtemp(prefix="setpoint-images-"))
        self._driver = self._storage_driver()
        made = self._buildah("from", "scratch")
        self._buildah("add", made, str(base()), "/")
        self._buildah("config", "--env=PATH=/usr/local/bin:/usr/local/sbin:/usr/bin:/usr/sbin:/bin:/sbin", made)
        self._buildah("commit", "--quiet", "--rm", made, "base")
        return self

    def __exit__(self, *_: object) -> None:
        self._buildah("rm", "--all")  # unmounts
        shutil.rmtree(self._folder, ignore_errors=True)

    def build(self, dockerfile: str, *, on: str = "BASE=localhost/base") -> Image:
        """Build an image from the repository's root, as the documents say to. Raises ImageFailed."""
        name = Path(dockerfile).stem
        self.make(name, dockerfile, on=on)
        container = self._buildah("from", f"localhost/{name}")
        inspected = json.loads(self._buildah("inspect", "--type=image", f"localhost/{name}"))
        return Image(Path(self._buildah("mount", container)), inspected["OCIv1"]["config"])

    def make(self, name: str, dockerfile: str, context: Path = ROOT, *, on: str = "BASE=localhost/base") -> None:
        """Build an image as `tools.release` does, but on another base. Raises ImageFailed."""
        self._buildah(
            "build", f"--build-arg={on}", *self._package_indexes(), f"--tag={name}",
            *arguments(dockerfile, context, EPOCH, {}),
        )  # fmt: skip

    def layout(self, name: str) -> Layout:
        """Write a built image as an OCI layout, which is what a release pushes."""
        target = self._folder / "layouts" / f"setpoint-{name}"
        target.parent.mkdir(exist_ok=True)
        self._buildah("push", "--quiet", f"localhost/{name}", f"oci:{target}:latest")
        return Layout.opened(target)

    def archive(self, name: str, reference: str, target: Path) -> None:
        """Write a built image as an archive that container runtimes import under that reference."""
        self._buildah("push", "--quiet", f"localhost/{name}", f"docker-archive:{target}:{reference}")

    def of_one_program(self, program: Path, reference: str, target: Path) -> None:
        """Write an archive of an image that holds one static program and starts it."""
        self.of_programs({f"/{program.name}": program}, reference, target)

    def of_programs(
        self, programs: Mapping[str, Path], reference: str, target: Path, *, user: str = "", base: str = "scratch"
    ) -> None:
        """Write an archive of an image with these programs at these paths, on a base; it starts the first of them."""
        made, name = self._buildah("from", base), target.stem
        for path, program in programs.items():
            self._buildah("add", "--chmod=755", made, str(program), path)
        entry = f'--entrypoint=["{next(iter(programs))}"]'
        self._buildah("config", entry, "--env=PATH=/usr/local/bin:/usr/bin:/bin", f"--user={user}", made)
        self._buildah("commit", "--quiet", "--rm", made, name)
        self.archive(name, reference, target)

    def _buildah(self, *arguments: str) -> str:
        return ran("buildah", *self._where(self._driver), *arguments)

    def _where(self, driver: str) -> list[str]:
        own = self._folder / driver
        return [f"--root={own}/storage", f"--runroot={own}/run", f"--storage-driver={driver}"]

    def _storage_driver(self) -> str:
        """Return `overlay` where buildah can use it: `vfs` copies all files for each stage, image and container."""
        try:
            ran("buildah", *self._where("overlay"), "info")
        except ImageFailed:
            return "vfs"
        return "overlay"

    def _package_indexes(self) -> Iterator[str]:
        """This machine's way to its package indexes, mounted while the build runs: no layer keeps any of it."""
        (self._folder / "pip.conf").write_text(pip_settings())
        (self._folder / "npmrc").write_text(npm_settings())
        yield f"--volume={self._folder}/pip.conf:/etc/pip.conf:ro"
        yield f"--volume={self._folder}/npmrc:/root/.npmrc:ro"
        if bundle := _bundle():
            yield f"--volume={bundle}:{BUNDLE}:ro"


@cache
def base() -> Path:
    """An archive of the base's files, made on first use and kept by the hash of what it was made of."""
    held = repr((RELEASE, PACKAGES, HOOKS, LEAVES_OUT))
    parent = cache_folder() / "images"
    archive = parent / f"base-{hashlib.sha256(held.encode()).hexdigest()[:16]}.tar"
    parent.mkdir(parents=True, exist_ok=True)
    with (parent / ".lock").open("w") as lock:  # of two test processes one makes it, the other waits and finds it
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not archive.exists():
            unfinished = archive.with_suffix(".unfinished.tar")
            ran(
                "mmdebstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}",
                *(f"--customize-hook={hook}" for hook in HOOKS),
                *(f"--dpkgopt=path-exclude={path}" for path in LEAVES_OUT),
                RELEASE, str(unfinished), *debian_archives(),
            )  # fmt: skip
            unfinished.rename(archive)
    return archive


def cache_folder() -> Path:
    """Return the folder of what is built once for each machine and version; SETPOINT_CACHE moves it."""
    default = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "setpoint"
    return Path(os.environ.get("SETPOINT_CACHE") or default)


def debian_archives(release: str = RELEASE) -> Sequence[str]:
    """The archive that this machine's apt uses; none: Debian's own, which mmdebstrap knows."""
    try:
        targets = ran(
            "apt-get", "indextargets", "--format", "$(REPO_URI) $(RELEASE)", "Origin: Debian", "Label: Debian"
        )
    except ImageFailed:
        return ()
    uris = {uri for uri, suite in (line.split() for line in targets.splitlines()) if "-" not in suite}
    return [f"deb {uri} {release} main" for uri in sorted(uris)[:1]]


def pip_settings() -> str:
    """Return this machine's package index settings as a file for the build's pip."""
    files = configparser.RawConfigParser(strict=False)
    files.read(["/etc/pip.conf", Path.home() / ".pip/pip.conf", Path.home() / ".config/pip/pip.conf"])
    given = {key: value for part in ("global", "install") if part in files for key, value in files[part].items()}
    named = {f"PIP_{key.upper().replace('-', '_')}": key for key in PIP_KEYS}
    given |= {key: os.environ[name] for name, key in named.items() if name in os.environ}
    given = {key: value for key, value in given.items() if key in PIP_KEYS and not value.startswith("/")}
    if _bundle():
        given["cert"] = BUNDLE
    return "\n".join(["[global]", *(f"{key} = {value}" for key, value in given.items()), ""])


def npm_settings() -> str:
    there = Path.home() / ".npmrc"
    kept = there.read_text().splitlines() if there.exists() else []
    kept = [line for line in kept if not line.startswith(("cafile", "nodedir", "prefix"))]
    registry = next((value for name, value in os.environ.items() if name.lower() == "npm_config_registry"), "")
    return "\n".join(
        [*kept, *([f"registry={registry}"] * bool(registry)), *([f"cafile={BUNDLE}"] * bool(_bundle())), ""]
    )


def _bundle() -> str:
    """This machine's certificate authorities; the empty string where it has none."""
    return next((path for path in (os.environ.get("SSL_CERT_FILE", ""), BUNDLE) if path and Path(path).is_file()), "")


def ran(program: str, *arguments: str) -> str:
    """Its output, stripped. Raises ImageFailed."""
    try:
        done = subprocess.run(
            [program, *arguments], capture_output=True, text=True, check=False, timeout=SECONDS, cwd=ROOT
        )
    except FileNotFoundError as error:
        raise ImageFailed(f"{program} is not installed; .ci/run installs it") from error
    if done.returncode:
        raise ImageFailed(f"{program} {' '.join(arguments)[:400]}: {done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout.strip()
