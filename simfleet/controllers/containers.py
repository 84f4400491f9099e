"""The kubelet's side of pods that came through the API: pulling, starting, crashing, ending, as their programs do."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from clusters import objects
from simfleet import manifests
from simfleet.apiserver.store import Raw, Stored
from simfleet.clock import stamp
from simfleet.controllers import events
from simfleet.controllers.budgets import is_ready
from simfleet.controllers.programs import Program

if TYPE_CHECKING:
    from simfleet.core import SimCluster

FIRST_BACKOFF_SECONDS = 10.0
LONGEST_BACKOFF_SECONDS = 300.0
"""The kubelet's curve, of pulls and of crashes."""
SLOWEST, STEPS = 4, 30
"""How much longer the slowest node pulls than the fastest, and how many steps there are between."""


class Containers:
    """Each start of a pod is a turn; what an earlier turn had planned is void."""

    def __init__(self, cluster: SimCluster) -> None:
        self._cluster, self._store = cluster, cluster.store
        self._turns: dict[str, int] = {}
        self._pulled: set[tuple[str, str]] = set()
        """Node and image: what need not be pulled again."""

    def start(self, pod: Stored) -> None:
        """A pod bound to a node whose kubelet runs; again after a reboot."""
        uid = pod.raw["metadata"]["uid"]
        if is_ready(pod.raw):
            self._cluster.operators.again(pod)  # only the kubelet restarted; containers ran on
            return
        self._turns[uid] = self._turns.get(uid, 0) + 1
        self._try(pod, failures=0)

    def forget(self, uid: str) -> None:
        self._turns.pop(uid, None)

    def _try(self, pod: Stored, *, failures: int) -> None:
        bad, program = self._worst(pod.raw)
        if program.is_missing:
            self._unpullable(pod, bad, failures)
        elif missing := self._missing(pod.raw):
            node = pod.raw["spec"]["nodeName"]
            self._show(pod, "Pending", "", {"waiting": {"reason": "ContainerCreating"}}, is_ready=False)
            self._then(pod, max(_pull_seconds(node, *image) for image in missing.items()), self._arrived)
        elif program.crashes:
            self._show(pod, "Running", bad, {"running": self._started()}, is_ready=False)
            self._then(pod, 1.0, lambda now: self._crashed(now, bad, failures, exit_code=1))
        elif pod.raw["spec"].get("restartPolicy", "Always") == "Always":
            self._show(pod, "Running", bad, {"running": self._started()}, is_ready=False)
            self._then(pod, program.ready_seconds, self._ready)
        else:
            self._show(pod, "Running", bad, {"running": self._started()}, is_ready=True)
            self._then(pod, program.run_seconds, lambda now: self._ended(now, bad, program.exit_code, failures))

    def _worst(self, pod: Mapping[str, Any]) -> tuple[str, Program]:
        """The container that decides how the pod fares, and its program."""
        programs = [(c["name"], self._cluster.programs.of(c["image"])) for c in containers_of(pod)]
        for name, program in programs:
            if program.is_missing or program.crashes or program.exit_code:
                return name, program
        own = pod["spec"]["containers"][0]
        return own["name"], self._cluster.programs.of(own["image"])

    def _missing(self, pod: Mapping[str, Any]) -> dict[str, float]:
        """Images that the pod's node does not have, and how long each takes."""
        node = pod["spec"]["nodeName"]
        of = self._cluster.programs.of
        pull_seconds = {c["image"]: of(c["image"]).pull_seconds for c in containers_of(pod)}
        return {
            image: seconds for image, seconds in pull_seconds.items() if seconds and (node, image) not in self._pulled
        }

    def _arrived(self, pod: Stored) -> None:
        self._pulled |= {(pod.raw["spec"]["nodeName"], c["image"]) for c in containers_of(pod.raw)}
        self._try(pod, failures=0)

    # ── next states ────────────────────────────────────────────────────────────────────────────────────────────
    def _ready(self, pod: Stored) -> None:
        self._show(pod, "Running", "", {"running": self._started()}, is_ready=True)

    def _unpullable(self, pod: Stored, bad: str, failures: int) -> None:
        image = next(c["image"] for c in containers_of(pod.raw) if c["name"] == bad)
        message = f'failed to pull and unpack image "{image}": {image}: not found'
        reason = "ImagePullBackOff" if failures else "ErrImagePull"
        words = f'Back-off pulling image "{image}": ErrImagePull: {message}' if failures else message
        self._show(pod, "Pending", bad, {"waiting": {"reason": reason, "message": words}}, is_ready=False)
        events.warn(self._cluster, pod, "Failed", f'Failed to pull image "{image}": {message}')
        self._again(pod, failures)

    def _crashed(self, pod: Stored, bad: str, failures: int, *, exit_code: int) -> None:
        name = pod.key[1]
        wait = _backoff(failures)
        message = f"back-off {wait:.0f}s restarting failed container={bad} pod={name}"
        waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": message}}
        last = {"terminated": {"exitCode": exit_code, "reason": "Error"}}
        self._show(pod, "Running", bad, waiting, is_ready=False, restarts=failures + 1, last=last)
        events.warn(self._cluster, pod, "BackOff", f"Back-off restarting failed container {bad} in pod {name}")
        self._again(pod, failures)

    def _ended(self, pod: Stored, bad: str, exit_code: int, failures: int) -> None:
        if exit_code and pod.raw["spec"].get("restartPolicy") == "OnFailure":
            self._crashed(pod, bad, failures, exit_code=exit_code)
            return
        reason = "Error" if exit_code else "Completed"
        state = {"terminated": {"exitCode": exit_code, "reason": reason, "finishedAt": self._now()}}
        self._show(pod, "Failed" if exit_code else "Succeeded", bad, state, is_ready=False)

    def _again(self, pod: Stored, failures: int) -> None:
        """Another try later; with a rule that is gone by then, it is the first good one."""
        self._then(pod, _backoff(failures), lambda now: self._try(now, failures=failures + 1))

    def _then(self, pod: Stored, seconds: float, action: Callable[[Stored], None]) -> None:
        uid, key = pod.raw["metadata"]["uid"], pod.key
        turn = self._turns[uid]

        def act() -> None:
            now = self._store.find("pods", key[1], key[0])
            if now is None or now.raw["metadata"]["uid"] != uid or self._turns.get(uid) != turn:
                return
            machine = self._cluster.nodes.machine(now.raw["spec"]["nodeName"])
            is_ending = "deletionTimestamp" in now.raw["metadata"] or objects.is_finished(now.raw)
            if not is_ending and machine is not None and machine.has_kubelet:
                action(now)

        self._cluster.after(seconds, act)

    # ── status ────────────────────────────────────────────────────────────────────────────────────────────────────
    def _show(
        self,
        pod: Stored,
        phase: str,
        bad: str,
        state: Raw,
        *,
        is_ready: bool,
        restarts: int | None = None,
        last: Raw | None = None,
    ) -> None:
        """Write the status; `state` is the container `bad`'s, the others run. "" means all."""
        old = pod.raw.get("status") or {}
        had = {c["name"]: c["restartCount"] for c in old.get("containerStatuses") or ()}
        statuses: list[Raw] = []
        for container in pod.raw["spec"]["containers"]:
            name, image = container["name"], container["image"]
            is_this = bad in ("", name)
            own = state if is_this else {"running": self._started()}
            count = restarts if is_this and restarts is not None else had.get(name, 0)
            entry = {"name": name, "image": image, "imageID": "", "restartCount": count, "state": own}
            is_up = "running" in own and (is_ready or not is_this)
            statuses.append(entry | {"ready": is_up, "started": is_up, "lastState": (last or {}) if is_this else {}})
        new: Raw = old | {"phase": phase, "startTime": old.get("startTime") or self._now()}
        new["containerStatuses"] = statuses
        if any(c["name"] == bad for c in pod.raw["spec"].get("initContainers") or ()):
            new["containerStatuses"] = [s | _initializing() for s in statuses]
            new["initContainerStatuses"] = [
                {"name": bad, "ready": False, "restartCount": restarts or 0, "state": state}
            ]
            new["phase"] = "Pending" if phase == "Running" else phase
        else:
            new.pop("initContainerStatuses", None)
        new["conditions"] = manifests.pod_conditions(is_ready=is_ready, at=self._now())
        self._store.write("pods", pod.raw | {"status": new})

    def _started(self) -> Raw:
        return {"startedAt": self._now()}

    def _now(self) -> str:
        return stamp(self._cluster.clock.now())


def containers_of(pod: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    spec = pod["spec"]
    return [*(spec.get("initContainers") or ()), *spec["containers"]]


def _pull_seconds(node: str, image: str, seconds: float) -> float:
    """The same for the same node and image, and another for most others."""
    step = zlib.crc32(f"{node} {image}".encode()) % (STEPS + 1)
    return seconds * (1 + (SLOWEST - 1) * step / STEPS) / 2


def _initializing() -> Raw:
    return {"ready": False, "started": False, "state": {"waiting": {"reason": "PodInitializing"}}}


def _backoff(failures: int) -> float:
    return float(min(LONGEST_BACKOFF_SECONDS, FIRST_BACKOFF_SECONDS * 2 ** min(failures, 8)))
