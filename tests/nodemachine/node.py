"""A machine that is a node of the test's control plane, with a kubelet, kube-proxy and containerd of its own."""

from __future__ import annotations

import hashlib
import json
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from clusters.net.credentials import Credentials
from contract import names
from tests.controlplane.admin import Admin
from tests.controlplane.plane import Plane, kubeconfig
from tests.full.harness.images import ROOT, Images, base, cache_folder
from tests.nodemachine.disk import PACKAGES, parts
from tests.nodemachine.guest import MachineError
from tests.nodemachine.machine import HOST, NodeMachine

HERE = Path(__file__).resolve().parent
DOCKERFILE = "deploy/agent.Dockerfile"
AGENT = "setpoint-agent:0.3.0"
"""The image that deploy/setpoint.yaml names."""
READY_SECONDS = 600.0
SERVICE = """\
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: kubernetes
  namespace: default
  labels: {{kubernetes.io/service-name: kubernetes}}
addressType: IPv4
endpoints: [{{addresses: [{host}]}}]
ports: [{{name: https, port: {port}}}]
"""
"""Makes the address that pods have for the API server lead to it: kube-proxy on each node reads it."""


TUNNEL_PORT = 8132
"""Where the node's end of the plane's tunnel listens."""
TUNNEL = HERE / "tunnel.py"
_USES_A_PAGE = """\
import mmap, time
huge = 0x40000 | {shift} << 26  # MAP_HUGETLB and the size of the page, linux/mman.h
page = mmap.mmap(-1, 1 << {shift}, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | huge)
page[0] = 1
print("touched", flush=True)
time.sleep(600)
"""
_SHIFTS = {"2Mi": 21, "1Gi": 30}


def binaries() -> Path:
    """Return the folder of kubelet, kube-proxy and pause, built on first use in some minutes."""
    done = subprocess.run([HERE / "build.sh"], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the kubelet was not built: {done.stderr[-3000:]}")
    return Path(done.stdout.strip())


def images() -> list[Path]:
    """Return archives of the nodes' images: the agent's by its own Dockerfile, and the pods' first program.

    They are kept by the hash of what they were made of.
    """
    sources = [ROOT / DOCKERFILE, *sorted((ROOT / "agent").rglob("*.py")), *sorted((ROOT / "contract").rglob("*.py"))]
    held = [base().name, binaries().name, *(str(path.relative_to(ROOT)) + path.read_text() for path in sources)]
    folder = cache_folder() / "node" / f"images-{hashlib.sha256(repr(held).encode()).hexdigest()[:16]}"
    if not folder.is_dir():
        unfinished = Path(tempfile.mkdtemp(prefix=".images-", dir=folder.parent))
        with Images() as made:
            made.build(DOCKERFILE)
            made.archive("agent", AGENT, unfinished / "agent.tar")
            made.of_one_program(binaries() / "pause", "registry.k8s.io/pause:3.10", unfinished / "pause.tar")
        unfinished.rename(folder)
    return sorted(folder.iterdir())


class Node:
    """`machine` is the computer, the rest is the node that it is in the cluster."""

    def __init__(
        self,
        plane: Plane,
        admin: Admin,
        folder: Path,
        name: str,
        archives: Sequence[Path],
        *,
        patience: float = READY_SECONDS,
        packages: Sequence[str] = PACKAGES,
    ) -> None:
        """`patience`: seconds for what is awaited; a node that imports many images at its first boot needs more.
        `packages`: of its disk."""
        self.plane, self.admin, self.name, self.patience = plane, admin, name, patience
        port = plane.url.rpartition(":")[2]
        plane.kubectl("apply", "-f", "-", text=SERVICE.format(host=HOST, port=port))
        built = binaries()
        disk = parts(
            folder / f"{name}-parts.img",
            {
                **{f"bin/{program}": built / program for program in ("kubelet", "kube-proxy")},
                **{f"images/{path.name}": path for path in archives},
                "ca.crt": plane.authority.pem,
                "node.env": f"NODE_NAME={name}\n",
                "kubelet.kubeconfig": self._kubeconfig(f"system:node:{name}", "system:nodes"),
                "kube-proxy.kubeconfig": self._kubeconfig("system:kube-proxy"),
            },
        )
        self.machine = NodeMachine(
            folder / name,
            name,
            disk,
            forwards={plane.tunnel: TUNNEL_PORT} if plane.tunnel else None,
            packages=packages,
        )

    def _kubeconfig(self, user: str, *groups: str) -> str:
        own = self.plane.credentials(user=user, groups=groups)
        seen = Credentials(
            server=own.server.replace("127.0.0.1", HOST), ca=own.ca,
            client_certificate=own.client_certificate, client_key=own.client_key,
        )  # fmt: skip
        return kubeconfig(seen)

    def start(self) -> Node:
        self.machine.power_on()
        self.machine.await_boot()
        self.await_ready()
        return self

    def close(self) -> None:
        self.machine.close()
        self.admin.delete("nodes", self.name)

    def left_behind(self) -> list[str]:
        """Say what makes the node another than one that Setpoint never changed; empty where nothing does."""
        tuning = self.admin.find(names.PLURAL, self.name) or {}
        left = [str(wanted["key"]) for wanted in tuning.get("spec", {}).get("settings", [])]
        try:
            self.await_ready()
            left += ["its cordon"] if self.object()["spec"].get("unschedulable") else []
            left += self.machine.shell("find /etc -name '*setpoint*'").split()
        except (AssertionError, MachineError) as error:
            left.append(str(error)[:300])
        return left

    def replace(self) -> Node:
        """Start a new machine in the node's place: other disks, another Node object of the same name."""
        self.machine.renew()
        self.admin.delete("nodes", self.name)
        for plural in ("nodes", names.PLURAL):  # a NodeTuning is deleted with its Node, and by no administrator
            self.admin.wait_gone(plural, self.name)
        for pod in self.pods(names.NAMESPACE):  # its status is that of the machine before
            self.admin.delete("pods", pod["metadata"]["name"], names.NAMESPACE, grace=0)
        return self.start()

    # ── the node as the cluster sees it ───────────────────────────────────────────────────────────────────────────
    def object(self) -> dict[str, Any]:
        return self.admin.find("nodes", self.name) or {}

    @property
    def boot_id(self) -> str:
        return str(self.object().get("status", {}).get("nodeInfo", {}).get("bootID", ""))

    @property
    def is_ready(self) -> bool:
        conditions = self.object().get("status", {}).get("conditions", [])
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    def allocatable(self, resource: str) -> str:
        return str(self.object()["status"]["allocatable"].get(resource, ""))

    def await_ready(self, boot: str = "") -> None:
        """Wait until kubelet (of this boot, where one is named) says Ready and the agent's pod runs."""
        self.eventually(lambda: self.is_ready and boot in ("", self.boot_id) and self.agent_is_running())

    def agent_is_running(self) -> bool:
        return any(
            pod["status"].get("phase") == "Running"
            and all(status.get("ready") for status in pod["status"].get("containerStatuses", [{}]))
            for pod in self.pods(names.NAMESPACE)
            if "deletionTimestamp" not in pod["metadata"]
        )

    def pods(self, namespace: str = "default") -> list[dict[str, Any]]:
        where = ("-n", namespace, "--field-selector", f"spec.nodeName={self.name}")
        return list(json.loads(self.plane.kubectl("get", "pods", *where, "-o", "json"))["items"])

    def run_pod(self, name: str, command: Sequence[str], limits: Mapping[str, str]) -> None:
        """Start a pod of the agent's image, which has Python, with a command of its own."""
        container = {
            "name": "program", "image": AGENT, "imagePullPolicy": "Never", "command": list(command),
            "resources": {"limits": dict(limits), "requests": dict(limits)},
        }  # fmt: skip
        pod = {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
            "spec": {"containers": [container], "nodeName": self.name, "terminationGracePeriodSeconds": 1},
        }  # fmt: skip
        self.admin.create("pods", pod)

    def pod_log(self, name: str, namespace: str = "default") -> str:
        """The output of a pod so far, read from the node's own files."""
        return self.machine.shell(f"cat /var/log/pods/{namespace}_{name}_*/*/*.log 2>/dev/null || true")

    def use_a_page(self, resource: str) -> None:
        """Run a pod that touches one huge page, and end it: while it runs, the kernel keeps that page in its pool."""
        name, memory = f"uses-{resource.lower()}", resource.removeprefix("hugepages-")
        program = ["python", "-S", "-c", _USES_A_PAGE.format(shift=_SHIFTS[memory])]
        self.run_pod(name, program, {resource: memory, "memory": "64Mi"})
        try:
            self.eventually(lambda: "touched" in self.pod_log(name))
        finally:
            self.admin.delete("pods", name)
            self.eventually(lambda: self.admin.find("pods", name) is None)

    def open_tunnel(self) -> None:
        """Let the API server reach pods and services: a proxy runs in the node's own network."""
        certificate, key = self.plane.authority.server(("127.0.0.1",))
        files = {"tls.crt": certificate, "tls.key": key, "ca.crt": self.plane.authority.pem}
        secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "tunnel"}, "stringData": files}
        self.plane.kubectl("apply", "-f", "-", text=json.dumps(secret))
        container = {
            "name": "tunnel", "image": AGENT, "imagePullPolicy": "Never",
            "command": ["python", "-S", "-c", TUNNEL.read_text(), str(TUNNEL_PORT), "/tls"],
            "volumeMounts": [{"name": "tls", "mountPath": "/tls", "readOnly": True}],
            "securityContext": {"runAsUser": 0},
        }  # fmt: skip
        spec = {
            "nodeName": self.name, "hostNetwork": True, "containers": [container],
            "tolerations": [{"operator": "Exists"}], "terminationGracePeriodSeconds": 1,
            "volumes": [{"name": "tls", "secret": {"secretName": "tunnel"}}],
        }  # fmt: skip
        self.admin.create("pods", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "tunnel"}, "spec": spec})
        self.eventually(lambda: "listens" in self.pod_log("tunnel"))

    # ── the kernel, read directly ─────────────────────────────────────────────────────────────────────────────────
    def values(self, keys: Iterable[str]) -> dict[str, str]:
        """Read the running kernel's values of these keys, without the agent; an absent one is the empty string."""
        keys = list(keys)
        commands = [f"{{ {_reading(key)}; }} 2>/dev/null | tr '\\n' ' '; echo" for key in keys]
        out = self.machine.shell("\n".join(commands))
        lines = [*out.splitlines(), *[""] * len(keys)]
        return {key: " ".join(_chosen(line).split()) for key, line in zip(keys, lines, strict=False)}

    def eventually(self, what: Callable[[], Any], seconds: float = 0) -> Any:
        deadline = time.monotonic() + (seconds or self.patience)
        while not (result := what()):
            assert time.monotonic() < deadline, self.story()
            time.sleep(0.5)
        return result

    def story(self) -> str:
        """All that is known of the node, for a failed test."""
        sections = [str(self.object().get("status", {}).get("conditions"))]
        sections += [str(pod["status"]) for pod in self.pods(names.NAMESPACE)]
        for command in (
            "systemctl --failed --no-pager --no-legend",
            "journalctl --no-pager -n 40 -u kubelet -u containerd -u images -u kube-proxy -o cat",
            "cat /var/log/pods/setpoint-system_*/agent/*.log | tail -n 30",
        ):
            try:
                sections.append(self.machine.shell(command))
            except Exception as error:
                sections.append(str(error))
        return "\n".join(sections)


def _reading(key: str) -> str:
    """A shell command that prints the kernel's value of a key."""
    first, _, rest = key.partition(".")
    match first:
        case "hugepages-2Mi":
            return "cat /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
        case "transparent_hugepage":
            return f"cat /sys/kernel/mm/transparent_hugepage/{rest}"
        case "module":
            return f"test -d /sys/module/{rest} && echo loaded"
        case "block":
            disks, _, attribute = rest.partition(".")
            return f"cat /sys/block/{disks}0n1/queue/{attribute}"
        case "cmdline":
            return f"tr ' ' '\\n' < /proc/cmdline | sed -n 's/^{rest}=//p'"
        case _:
            return f"cat /proc/sys/{key.replace('.', '/')}"


def _chosen(text: str) -> str:
    """The chosen word of a line like `always [madvise] never`; any other text as it is."""
    return text.partition("[")[2].partition("]")[0] if "[" in text else text
