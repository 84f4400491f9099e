"""Limits that systemd starts containerd and the kubelet with: a drop-in of Setpoint's own, effective when they restart.

What counts is the limit of the running process, in /proc. Containers get containerd's: through the shim of their pod,
which containerd starts with the pod, so a pod from before a restart keeps what it had.
"""

from __future__ import annotations

from agent import services
from agent.host import Host
from agent.kinds.base import AtStart, EffectiveValue, Unsupported, WriteRefused
from contract.kubelet import HARD, SERVICE_LIMITS
from contract.nodetuning import RestartAction

DROP_IN = "99-zz-setpoint.conf"
NR_OPEN = "/proc/sys/fs/nr_open"


def drop_in(service: str) -> str:
    return f"/etc/systemd/system/{service}.service.d/{DROP_IN}"


class ServiceLimit(AtStart):
    def __init__(self, running: services.Running) -> None:
        self._running = running

    def restart_of(self, key: str) -> RestartAction:
        return {"containerd": RestartAction.CONTAINERD, "kubelet": RestartAction.KUBELET}[SERVICE_LIMITS[key][0]]

    def read(self, host: Host, key: str) -> EffectiveValue:
        service, name = SERVICE_LIMITS[key]
        run = self._running.find(host, service)
        return EffectiveValue(services.limit(host, run, name, hard=key in HARD) if run else None)

    def check(self, host: Host, key: str, value: str) -> None:
        service, directive = SERVICE_LIMITS[key][0], key.partition(".")[2]
        if not host.has("systemctl"):
            raise Unsupported("unsupported here: the host has no systemctl")
        if services.unit_file(host, service) is None or not self._running.find(host, service):
            raise Unsupported(f"unsupported here: no {service}.service runs {service}")
        if service == "containerd" and _last(host, service, "KillMode") != "process":
            raise Unsupported(
                "unsupported here: containerd.service has no KillMode=process, so its restart would end every container"
            )
        most = (host.read_text(NR_OPEN) or "").strip()
        if key in HARD and most.isdecimal() and int(value) > int(most):
            raise WriteRefused(f"no process may have more than fs.nr_open, which is {most} here; raise that first")
        for path, other in services.assignments(host, service, directive):
            # The unit's own file comes before all drop-ins: its name does not count.
            if path.endswith(".conf") and path.rpartition("/")[2] > DROP_IN:
                raise WriteRefused(f"{path} sets {directive}={other}, and systemd reads it after Setpoint's {DROP_IN}")


def _last(host: Host, service: str, directive: str) -> str:
    return next((value for _, value in reversed(services.assignments(host, service, directive))), "")
