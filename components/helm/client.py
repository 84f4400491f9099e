"""The only caller of the helm program: v3.17 and newer, and v4, through one set of verbs.

Every run gets a private HOME and nothing of our environment; the kubeconfig is a file of mode 0600 in it, pinned to the
address that the egress policy permits, and goes with it. Never `--wait`: readiness is a state of the step, read by us.
Secrets are in `HelmJob.secrets` and are masked in all of helm's output.
"""

from __future__ import annotations

import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.conf import settings

from clusters.fleet import CredentialsRefused, FleetRefused, FleetUnavailable
from clusters.kube import kubeconfig
from clusters.net.credentials import Credentials
from clusters.net.egress import Policy
from components.helm import process
from components.helm.errors import (
    HelmError,
    HelmMissing,
    HelmRefused,
    HelmTimeout,
    HelmUnauthorized,
    HelmUnavailable,
    NoRelease,
    ReleaseBusy,
    Stopped,
    UnknownKind,
    UnreadableObject,
    spoken,
    translated,
)

__all__ = [
    "Helm",
    "HelmError",
    "HelmJob",
    "HelmMissing",
    "HelmRefused",
    "HelmTimeout",
    "HelmUnauthorized",
    "HelmUnavailable",
    "NoRelease",
    "ReleaseBusy",
    "Stopped",
    "UnknownKind",
    "UnreadableObject",
    "program",
]

OLDEST = (3, 17)
HISTORY = 10
"""Revisions that helm keeps of a release: its own default."""
HOOK_SECONDS = 300
"""How long helm waits for one hook, its own default. Only hooks are waited for."""
VERSION_SECONDS = 20.0
_VERSION = re.compile(r"v(\d+)\.(\d+)(?:\.(\d+))?(?:[-+][\w.+-]*)?")
"""A release stamps all three; what `go install` builds says v3.19 or v4.3."""
_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,51}[a-z0-9])?")
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_CHUNK = 100
"""API versions an argument: Linux takes 128 KiB in one."""


@dataclass(frozen=True, slots=True)
class HelmJob:
    """Input of all verbs: the release, the credentials, the deadline, and a way to stop it."""

    release: str
    namespace: str
    credentials: Credentials | None = None
    """None: helm reaches no cluster; only `template` can do without."""
    deadline: float = 0.0
    """time.monotonic()"""
    stop: Callable[[], bool] = lambda: False
    tell: Callable[[str], None] = lambda line: None
    secrets: tuple[str, ...] = field(default=(), repr=False)

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.release):
            raise HelmRefused(f"{self.release[:80]!r} is not the name of a release: a-z, 0-9 and -, at most 53")
        if not _NAMESPACE.fullmatch(self.namespace):
            raise HelmRefused(f"{self.namespace[:80]!r} is not the name of a namespace")


@dataclass(frozen=True, slots=True)
class Helm:
    program: str
    version: str
    """As it calls itself: v3.17.3."""

    @property
    def is_v4(self) -> bool:
        return self.version.startswith("v4.")

    def template(
        self,
        job: HelmJob,
        chart: bytes,
        values: Mapping[str, Any],
        *,
        kube_version: str,
        api_versions: Sequence[str] = (),
        is_upgrade: bool = False,
    ) -> bytes:
        """The manifest with hooks and CRDs. With credentials, `lookup` asks the cluster, as an upgrade's does.

        helm v4 then builds and reads each object, too. Raises HelmError, of which UnknownKind and UnreadableObject.
        """
        arguments = ["template", job.release, "chart.tgz", "--include-crds", f"--kube-version={kube_version}"]
        if job.credentials:
            arguments.append("--dry-run=server")
            # What is there already, and whose it is, the plan compares and tells of each object.
            arguments += ["--take-ownership"] if self.is_v4 else []
        if is_upgrade:
            arguments.append("--is-upgrade")
        chunks = (api_versions[at : at + _CHUNK] for at in range(0, len(api_versions), _CHUNK))
        arguments += [f"--api-versions={','.join(chunk)}" for chunk in chunks]
        return self._run(job, arguments, chart=chart, values=values)

    def install(
        self,
        job: HelmJob,
        chart: bytes,
        values: Mapping[str, Any],
        *,
        labels: Mapping[str, str] | None = None,
        is_again: bool = False,
    ) -> None:
        """Make a first revision, with `labels` on helm's record of it.

        `is_again`: after one that failed or was removed. The definitions of `crds/` exist already
        (components.release.definitions): helm v4 would change them. Raises HelmError.
        """
        arguments = ["install", job.release, "chart.tgz", "--skip-crds", *(["--replace"] if is_again else [])]
        self._run(job, [*arguments, *_recorded(labels)], chart=chart, values=values)

    def upgrade(
        self,
        job: HelmJob,
        chart: bytes,
        values: Mapping[str, Any],
        *,
        labels: Mapping[str, str] | None = None,
        is_server_side: bool = False,
    ) -> None:
        """The next revision, with exactly these values: nothing is taken over from the last. Raises HelmError.

        `is_server_side`: the last one was applied so; fields that another party set since are then taken back, as they
        are where helm patches from the client's side.
        """
        arguments = ["upgrade", job.release, "chart.tgz", "--reset-values", f"--history-max={HISTORY}"]
        arguments += self._taking_over(is_server_side)
        self._run(job, [*arguments, *_recorded(labels)], chart=chart, values=values)

    def rollback(self, job: HelmJob, revision: int, *, is_server_side: bool = False) -> None:
        """A next revision with chart and values of an earlier one. Raises HelmError."""
        arguments = ["rollback", job.release, str(revision), f"--history-max={HISTORY}"]
        arguments += self._taking_over(is_server_side)
        self._run(job, [*arguments, f"--timeout={HOOK_SECONDS}s"])

    def _taking_over(self, is_server_side: bool) -> list[str]:
        return ["--force-conflicts"] if self.is_v4 and is_server_side else []

    def uninstall(self, job: HelmJob, *, keeps_history: bool = False) -> None:
        """Its objects and, unless `keeps_history`, helm's records of it, without which nothing brings it back.

        What is of `crds/` and what a chart keeps stays. Raises HelmError.
        """
        # Without waiting: helm v4 would otherwise wait for finalizers, which is for the readiness of the step to see.
        kept = ["--keep-history"] if keeps_history else []
        self._run(job, ["uninstall", job.release, *kept, "--cascade=background", f"--timeout={HOOK_SECONDS}s"])

    def _run(
        self,
        job: HelmJob,
        arguments: Sequence[str],
        *,
        chart: bytes | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> bytes:
        with process.home() as folder:
            if chart is not None:
                process.write_private(folder / "chart.tgz", chart)
                process.write_private(folder / "values.json", json.dumps(values or {}).encode())
                arguments = [*arguments, "--values=values.json"]
            if job.credentials:
                with _as_helm_errors():
                    text = kubeconfig.pinned(job.credentials, policy=Policy.of(settings.SETPOINT_ALLOW_NETWORKS))
                process.write_private(folder / "kubeconfig", text.encode())
            if arguments[0] != "template":
                arguments = [*arguments, "--debug"]
            secrets = (*job.secrets, *_credentials(job.credentials))

            def tell(line: str) -> None:
                if masked_line := spoken(line, secrets):
                    job.tell(masked_line)

            limits = process.Limits(job.deadline, job.stop, tell)
            done = process.run(self.program, [*arguments, f"--namespace={job.namespace}"], folder, limits)
        if done.status:
            raise translated(done.words, done.status, secrets)
        return done.out


def program() -> Helm:
    """The program that SETPOINT_HELM names, else the one found, asked once for its version. Raises HelmMissing."""
    where = process.find_program(settings.SETPOINT_HELM, os.environ)
    stamp = Path(where).stat().st_mtime_ns
    with _lock:
        if known := _known.get((where, stamp)):
            return known
    helm = Helm(where, _version(where))
    with _lock:
        _known[where, stamp] = helm
    return helm


_lock = threading.Lock()
_known: dict[tuple[str, int], Helm] = {}


def _version(where: str) -> str:
    limits = process.Limits(time.monotonic() + VERSION_SECONDS)
    with process.home() as folder:
        try:
            done = process.run(where, ["version", "--template={{.Version}}"], folder, limits)
        except HelmTimeout as error:
            raise HelmMissing(f"{where} did not tell its version within {VERSION_SECONDS:g} s") from error
    match = _VERSION.fullmatch(done.out.decode("utf-8", "replace").strip())
    if done.status or not match:
        raise HelmMissing(f"{where} is not helm: it does not tell its version")
    if (int(match[1]), int(match[2])) < OLDEST or int(match[1]) > 4:
        raise HelmMissing(f"{where} is helm {match[0]}; supported are v{OLDEST[0]}.{OLDEST[1]} and newer, and v4")
    return match[0]


def _recorded(labels: Mapping[str, str] | None) -> list[str]:
    pairs = ",".join(f"{name}={value}" for name, value in (labels or {}).items())
    return [*([f"--labels={pairs}"] if pairs else []), f"--timeout={HOOK_SECONDS}s", "--hide-notes"]


def _credentials(credentials: Credentials | None) -> tuple[str, ...]:
    if credentials is None:
        return ()
    return tuple(text for text in (credentials.token, credentials.client_key) if text)


@contextmanager
def _as_helm_errors() -> Iterator[None]:
    try:
        yield
    except CredentialsRefused as error:
        raise HelmUnauthorized(str(error)) from error
    except FleetRefused as error:
        raise HelmRefused(str(error)) from error
    except FleetUnavailable as error:
        raise HelmUnavailable(str(error)) from error
