"""A real control plane for tests and benchmarks: etcd, kube-apiserver, controller-manager, scheduler and kwok.

Everything listens on 127.0.0.1 on free ports, lives in one temporary folder, and ends with the process that started it.
kwok plays kubelet for nodes with the annotation `kwok.x-k8s.io/node: fake`, and for no others. Every request is in the
audit log.

By hand: `python -m tests.controlplane.plane` prints a KUBECONFIG and waits for Ctrl-C.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from clusters.fleet import FleetError
from clusters.kube.apiserver import ApiServer, Call
from clusters.net.credentials import Credentials
from clusters.net.egress import Policy
from tests.controlplane import egress, pki
from tests.ports import free_port

HERE = Path(__file__).resolve().parent
LOOPBACK = Policy.of(["127.0.0.0/8"])
NAMES = ("127.0.0.1", "localhost", "10.96.0.1", "kubernetes.default.svc", "10.0.2.2")
"""Of the API server's certificate; the last is this computer as machines in QEMU's user network see it."""
READY_SECONDS = 90
_CALL = Call("get", "readyz")

AUDIT_POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  # With bodies: what was asked of a node is evidence.
  - level: Request
    verbs: [create, update, patch, delete]
    resources:
      - group: ""
        resources: [nodes, pods/eviction, configmaps]
      - group: setpoint.dev
  - level: Metadata
"""


CALM_SECONDS = 40
"""How often nodes of a calm plane renew their Leases; kubelets do so every 10 s."""
CALM_STAGE = """\
apiVersion: kwok.x-k8s.io/v1alpha1
kind: Stage
metadata: {name: calm-node}
spec:
  resourceRef: {apiGroup: v1, kind: Node}
  selector:
    matchExpressions:
      - key: '.status.conditions.[] | select( .type == "Ready" ) | .status'
        operator: NotIn
        values: ["True"]
  next:
    statusTemplate: |
      conditions:
        - type: Ready
          status: "True"
          reason: KubeletReady
          message: ""
          lastHeartbeatTime: {{ Now | Quote }}
          lastTransitionTime: {{ Now | Quote }}
"""


class NotBuilt(RuntimeError):
    """The binaries are not in the cache: `make controlplane` builds them."""


def binaries() -> Path:
    """Return the folder of this version's binaries. Raises NotBuilt."""
    where = subprocess.run([HERE / "build.sh", "--where"], capture_output=True, text=True, check=True).stdout.strip()
    if not Path(where).is_dir():
        raise NotBuilt(f"the test control plane is not built ({where} is missing): run `make controlplane`")
    return Path(where)


class Plane:
    """Starts in about 5 s, stops in 1. `admin` holds cluster-admin credentials, `kubeconfig` is a file of them.

    `is_calm` is for thousands of nodes on a few cores. kwok 0.7 patches the status of every node every 20 s where a
    kubelet with nothing new waits 5 min; in a calm plane it says once that a node is Ready, and renews Leases every
    CALM_SECONDS. The controller-manager has patience with nodes that the machine has no time for.

    `tunnel` is a loopback port. The API server reaches webhooks, API services and kubelets through an HTTP CONNECT
    proxy there, since pods' addresses lead nowhere from this computer. `garbage_percent` is Go's GOGC; 100, its own
    default, is what a benchmark measures.
    """

    def __init__(
        self,
        bin_dir: Path | None = None,
        *,
        folder: Path | None = None,
        is_calm: bool = False,
        tunnel: int = 0,
        garbage_percent: int = 100,
    ) -> None:
        self._is_calm = is_calm
        self.tunnel = tunnel
        self._garbage_percent = garbage_percent
        self.bin = bin_dir or binaries()
        self.folder = folder or Path(tempfile.mkdtemp(prefix="setpoint-plane-"))
        self._etcd, self._peer, self._port = free_port(), free_port(), free_port()
        self.url = f"https://127.0.0.1:{self._port}"
        self.authority = pki.Authority()
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        # What ends with its parent ends with the thread that started it: one thread starts all, and outlives them.
        self._starter = ThreadPoolExecutor(1, thread_name_prefix="plane")
        certificate, key = self.authority.client("setpoint-test-admin", ["system:masters"])
        self.admin = Credentials(server=self.url, ca=self.authority.pem, client_certificate=certificate, client_key=key)
        self.kubeconfig = self.folder / "admin.kubeconfig"
        self.audit_log = self.folder / "audit.log"

    # ── life ──────────────────────────────────────────────────────────────────────────────────────────────────────
    def start(self) -> Plane:
        try:
            self._write_files()
            self._run("etcd", *self._etcd_flags())
            self._run("kube-apiserver", *self._apiserver_flags())
            self._await_ready()
            common = ("--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port=0")
            self._run(
                "kube-controller-manager",
                f"--kubeconfig={self._user_file('system:kube-controller-manager')}",
                f"--service-account-private-key-file={self.folder}/sa.key",
                f"--root-ca-file={self.folder}/ca.crt",
                "--use-service-account-credentials",
                "--kube-api-qps=500",
                "--kube-api-burst=1000",
                *(("--node-monitor-grace-period=10m", "--node-startup-grace-period=10m") if self._is_calm else ()),
                *common,
            )
            self._run("kube-scheduler", f"--kubeconfig={self._user_file('system:kube-scheduler')}", *common)
            self._run(
                "kwok",
                f"--kubeconfig={self._user_file('kwok', 'system:masters')}",
                "--manage-all-nodes=false",
                "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
                "--disregard-status-with-annotation-selector=kwok.x-k8s.io/status=custom",
                "--cidr=10.0.0.1/16",
                # It renews after a quarter of the duration.
                f"--node-lease-duration-seconds={4 * CALM_SECONDS if self._is_calm else 40}",
                *((f"--config={self.folder}/calm.yaml",) if self._is_calm else ()),
            )
            self._await_default_account()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End what was started, by its own process id, last first. SETPOINT_KEEP_PLANE=1 keeps the logs."""
        running = list(reversed(self._processes.values()))
        self._processes.clear()
        for process in running:
            process.send_signal(signal.SIGTERM)
        for process in running:
            try:
                process.wait(2)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._starter.shutdown()
        if not os.environ.get("SETPOINT_KEEP_PLANE"):
            shutil.rmtree(self.folder, ignore_errors=True)

    def restart(self, program: str, down_seconds: float = 0.0) -> None:
        """Kill one program as a crash would, and start it again with the same flags."""
        process = self._processes.pop(program)
        process.kill()
        process.wait()
        time.sleep(down_seconds)
        self._run(program, *process.args[1:])
        if program in ("etcd", "kube-apiserver"):
            self._await_ready()

    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self._processes.items()}

    def __enter__(self) -> Plane:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def etcd_port(self) -> int:
        return self._etcd

    # ── use ───────────────────────────────────────────────────────────────────────────────────────────────────────
    def credentials(self, *, token: str = "", user: str = "", groups: Sequence[str] = ()) -> Credentials:
        """Make credentials for a service account's token, or for a user by client certificate."""
        if token:
            return Credentials(server=self.url, ca=self.authority.pem, token=token)
        certificate, key = self.authority.client(user, groups)
        return Credentials(server=self.url, ca=self.authority.pem, client_certificate=certificate, client_key=key)

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        """Output of kubectl as cluster-admin. Raises RuntimeError with its words."""
        command = [str(self.bin / "kubectl"), f"--kubeconfig={self.kubeconfig}", *arguments]
        done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=600, check=False)
        if done.returncode:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()[-2000:]}")
        return done.stdout

    def audit_position(self) -> int:
        """Bytes of audit log so far: what `audit` is given to see only later requests."""
        return self.audit_log.stat().st_size if self.audit_log.exists() else 0

    def audit(self, since: int = 0) -> Iterator[dict[str, Any]]:
        """Events of finished requests after a position, oldest first."""
        with self.audit_log.open("rb") as log:
            log.seek(since)
            for line in log:
                if line.endswith(b"\n"):  # the last one may still be in the making
                    yield json.loads(line)

    # ── parts ─────────────────────────────────────────────────────────────────────────────────────────────────────
    def _run(self, program: str, *flags: str) -> None:
        with (self.folder / f"{program}.log").open("ab") as log:
            self._processes[program] = self._starter.submit(
                subprocess.Popen,
                [str(self.bin / program), *flags],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env={"HOME": str(self.folder), "PATH": os.environ.get("PATH", ""), "GOGC": str(self._garbage_percent)},
                preexec_fn=end_with_parent,
            ).result()

    def _write_files(self) -> None:
        self.folder.chmod(0o700)
        serving = self.authority.server(NAMES)
        private, public = pki.signing_pair()
        files = {
            "ca.crt": self.authority.pem,
            "server.crt": serving[0],
            "server.key": serving[1],
            "sa.key": private,
            "sa.pub": public,
            "audit-policy.yaml": AUDIT_POLICY,
            "calm.yaml": CALM_STAGE,
            **egress.files(self.tunnel, self.folder, self.authority),
        }
        for name, content in files.items():
            (self.folder / name).write_text(content)
        self.kubeconfig.write_text(kubeconfig(self.admin))

    def _user_file(self, user: str, *groups: str) -> Path:
        path = self.folder / f"{user.replace(':', '-')}.kubeconfig"
        path.write_text(kubeconfig(self.credentials(user=user, groups=groups)))
        return path

    def _etcd_flags(self) -> list[str]:
        client, peer = f"http://127.0.0.1:{self._etcd}", f"http://127.0.0.1:{self._peer}"
        return [
            f"--data-dir={self.folder}/etcd",
            "--unsafe-no-fsync",
            f"--listen-client-urls={client}",
            f"--advertise-client-urls={client}",
            f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}",
            f"--initial-cluster=default={peer}",
            "--quota-backend-bytes=4294967296",
            "--log-level=warn",
        ]

    def _apiserver_flags(self) -> list[str]:
        return [
            f"--etcd-servers=http://127.0.0.1:{self._etcd}",
            f"--secure-port={self._port}",
            "--bind-address=127.0.0.1",
            f"--client-ca-file={self.folder}/ca.crt",
            f"--tls-cert-file={self.folder}/server.crt",
            f"--tls-private-key-file={self.folder}/server.key",
            f"--service-account-key-file={self.folder}/sa.pub",
            f"--service-account-signing-key-file={self.folder}/sa.key",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--service-cluster-ip-range=10.96.0.0/16",
            "--authorization-mode=Node,RBAC",
            "--allow-privileged",
            "--endpoint-reconciler-type=none",
            f"--audit-policy-file={self.folder}/audit-policy.yaml",
            f"--audit-log-path={self.audit_log}",
            "--audit-log-maxsize=4000",  # MB: a rotated log would lose witnesses
            *egress.flags(self.tunnel, self.folder),
        ]

    def _await_ready(self) -> None:
        deadline = time.monotonic() + READY_SECONDS
        server = ApiServer(self.admin, policy=LOOPBACK, timeout=5)
        try:
            while True:
                self._check_alive()
                try:
                    if server.send(_CALL, "GET", "/readyz").status == 200:
                        return
                except FleetError as error:
                    if time.monotonic() > deadline:
                        raise RuntimeError(f"the API server is not ready after {READY_SECONDS} s: {error}") from error
                if time.monotonic() > deadline:
                    raise RuntimeError(
                        f"the API server is not ready after {READY_SECONDS} s: {self._tail('kube-apiserver')}"
                    )
                time.sleep(0.2)
        finally:
            server.close()

    def _await_default_account(self) -> None:
        """Pods can be created once the controller-manager has made the namespace's service account."""
        deadline = time.monotonic() + READY_SECONDS
        server = ApiServer(self.admin, policy=LOOPBACK)
        try:
            while server.send(_CALL, "GET", "/api/v1/namespaces/default/serviceaccounts/default").status != 200:
                self._check_alive()
                if time.monotonic() > deadline:
                    raise RuntimeError(f"no default service account: {self._tail('kube-controller-manager')}")
                time.sleep(0.1)
        finally:
            server.close()

    def _check_alive(self) -> None:
        for name, process in self._processes.items():
            if process.poll() is not None:
                raise RuntimeError(f"{name} ended with status {process.returncode}: {self._tail(name)}")

    def _tail(self, program: str) -> str:
        return (self.folder / f"{program}.log").read_text(errors="replace")[-3000:]


def kubeconfig(credentials: Credentials) -> str:
    """A kubeconfig with everything inline, as JSON, which is YAML."""

    def encoded(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    user: dict[str, str] = {}
    if credentials.token:
        user["token"] = credentials.token
    if credentials.client_certificate:
        user["client-certificate-data"] = encoded(credentials.client_certificate)
        user["client-key-data"] = encoded(credentials.client_key)
    cluster = {"server": credentials.server, "certificate-authority-data": encoded(credentials.ca)}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": cluster}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        },
        indent=1,
    )


_libc = ctypes.CDLL(None, use_errno=True)


def end_with_parent() -> None:
    """A test run that is killed must not leave a control plane behind (prctl PR_SET_PDEATHSIG, Linux)."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    _libc.prctl(1, signal.SIGKILL)


def main() -> int:
    with Plane() as plane:
        print(f"export KUBECONFIG={plane.kubeconfig}", flush=True)
        print(f"# {plane.url}, logs in {plane.folder}; Ctrl-C ends it. kubectl: {plane.bin}/kubectl", flush=True)
        try:
            signal.sigwait({signal.SIGINT, signal.SIGTERM})
        except KeyboardInterrupt:
            pass
    return 0


if __name__ == "__main__":
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})
    sys.exit(main())
