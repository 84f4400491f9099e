"""Ten live settings over a whole cluster, by plan, approval and rollout, against kubectl labeling the same nodes."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.measure import Table, Usage, busy, load, usage
from bench.stage import Stage

if TYPE_CHECKING:
    from accounts.models import User
    from clusters.models import Cluster
    from jobs.models import Rollout

ROOT = Path(__file__).resolve().parent.parent
PROCESSES = ("web", "worker", "beat", "watch")
WRITES = frozenset({"create", "update", "patch", "delete"})
PATIENCE_SECONDS = 1800.0

SETTINGS: dict[str, int] = {  # ten live sysctls and where their values start; each run asks for one more
    "vm.swappiness": 10,
    "vm.vfs_cache_pressure": 50,
    "vm.dirty_expire_centisecs": 2000,
    "vm.dirty_writeback_centisecs": 300,
    "vm.max_map_count": 262144,
    "vm.stat_interval": 10,
    "vm.watermark_scale_factor": 100,
    "vm.compaction_proactiveness": 1,
    "vm.overcommit_ratio": 60,
    "vm.page-cluster": 1,
}
STRATEGY = {"canary": 1, "batch": "100%", "max_in_flight": 1000}


def measure(stage: Stage, counts: Sequence[int]) -> list[Table]:
    speed = Table(
        "Ten live settings over a cluster",
        [
            "nodes", "plan, s", "rollout, s", "`kubectl label nodes --all`, s", "ratio", "ratio of CPU",
            "writes a node", "by whom", "load before",
        ],
        "Canary of 1, then one batch, 1,000 in flight; from start to the last node verified in the database. "
        "kubectl labels the same nodes afterwards. Ratio of CPU: of the processes of the table below, others on the "
        "machine left out. Writes: Setpoint's and the agents' creates, updates and patches of "
        "nodes and NodeTunings during the rollout, from the API server's audit log. Load: the machine's, over one "
        "minute.",
    )  # fmt: skip
    processes = Table(
        "What each process used",
        ["nodes", "process", "RSS, MiB", "PSS, MiB", "CPU of the rollout, s", "a node, ms", "CPU of kubectl's loop, s"],
        "Memory after the rollout. The agents' process stands for all of them and would be spread over the nodes. "
        "Others: everything else on the machine.",
    )
    with Campaign(stage) as campaign:
        for count in counts:
            speed.add(*campaign.run(count))
            for name, used in campaign.used.items():
                spent, labeling = campaign.spent[name], campaign.labeling[name]
                processes.add(count, name, used.rss, used.pss, spent, spent / count * 1000, labeling)
            for name in ("kubectl", "others"):
                spent, labeling = campaign.spent.get(name, 0.0), campaign.labeling[name]
                processes.add(count, name, "", "", spent, spent / count * 1000, labeling)
    return [speed, processes]


class Campaign:
    """One connected cluster that grows, with the real worker, beat and watch, and simulated agents beside them."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self._runs = 0
        self._agents: subprocess.Popen[bytes]
        self.used: dict[str, Usage] = {}
        """By process, when the last rollout had ended."""
        self.spent: dict[str, float] = {}
        """Seconds of CPU by process, and by all others, of the last rollout."""
        self.labeling: dict[str, float] = {}
        """The same, of kubectl's loop."""

    def __enter__(self) -> Campaign:
        self.operator = _person("operator@example.com", "operator", "admin")
        self.approver = _person("approver@example.com", "approver")
        self.stage.installation.start(*PROCESSES)
        # Opened for good: the agents write to it for as long as they live.
        log = (self.stage.installation.folder / "agents.log").open("wb")
        command = [sys.executable, "-m", "bench.agents", str(self.stage.plane.kubeconfig)]
        self._agents = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log, env=dict(os.environ))
        self.cluster = _connected(self.stage, self.operator)
        return self

    def __exit__(self, *_: object) -> None:
        self._agents.terminate()
        self._agents.wait(20)

    def _usage(self) -> dict[str, Usage]:
        pids = {name: self.stage.installation.pid(name) for name in PROCESSES}
        pids |= {name: server.pid for name, server in self.stage.servers.items()}
        pids |= {**self.stage.plane.pids(), "agents": self._agents.pid}
        return {name: usage(pid) for name, pid in pids.items()}

    def grow(self, count: int) -> None:
        """Grow the fleet to `count` nodes whose agents have answered."""
        self.stage.grow(count)
        self._until(lambda: self._answering() >= count, lambda: f"{self._answering()} of {count} agents have answered")

    def run(self, count: int) -> tuple[object, ...]:
        self.grow(count)
        began = time.perf_counter()
        plan = self._approved()
        planned = time.perf_counter() - began
        since, before = self.stage.plane.audit_position(), load()
        spent, self.spent, self.used = self.measured(lambda: self.roll_out(plan))
        writes = _writes(self.stage.plane.audit(since))
        kubectl, self.labeling, _ = self.measured(self._label)
        by = ", ".join(f"{who} {number / count:.2f}" for who, number in sorted(writes.items()))
        total = sum(writes.values()) / count
        cpu, labeling = (sum(s for name, s in used.items() if name != "others") for used in (self.spent, self.labeling))
        ratios = f"{spent / kubectl:.2f}", f"{cpu / labeling:.2f}"
        return count, planned, spent, kubectl, *ratios, total, by, before

    def measured(self, action: Callable[[], object]) -> tuple[float, dict[str, float], dict[str, Usage]]:
        """Seconds it took, seconds of CPU by process, and the processes as it left them."""
        before, children, all_before = self._usage(), _children(), busy()
        began = time.perf_counter()
        action()
        took = time.perf_counter() - began
        after, everything = self._usage(), busy() - all_before
        spent = {name: used.cpu - before[name].cpu for name, used in after.items()}
        spent["kubectl"] = _children() - children
        spent["others"] = max(0.0, everything - sum(spent.values()))
        return took, spent, after

    def _answering(self) -> int:
        from clusters.models import NodeTuning

        return NodeTuning.objects.filter(node__cluster=self.cluster, node__gone_at=None, protocol__gt=0).count()

    def _approved(self) -> Any:
        self._runs += 1
        lines = "".join(f"  {key}: {start + self._runs}\n" for key, start in SETTINGS.items())
        plan = self.plan(f"bench-{self._runs}", f"settings:\n{lines}", STRATEGY)
        for reason, nodes in Counter(plan.nodes.exclude(left_out="").values_list("left_out", flat=True)).items():
            sys.stderr.write(f"{nodes} nodes are left out of the plan: {reason}\n")
        return self.approve(plan)

    def plan(self, name: str, source: str, strategy: dict[str, Any]) -> Any:
        """Plan a rollout to all nodes, from a profile of this name and text."""
        from jobs.forecast.strategy import parse
        from jobs.planning import planner

        revision = self.revision(name, source)
        return planner.make(pool=self.pool(), revision=revision, strategy=parse(strategy), by=self.operator)

    def revision(self, name: str, source: str) -> Any:
        from profiles.services import editing

        profile = editing.create(name=name, source=source, by=self.operator)
        return editing.publish(profile, by=self.operator, version=profile.version)

    def pool(self) -> Any:
        """Return the pool of all nodes, with the cluster as the watch has it by now."""
        from clusters.models import Pool
        from clusters.services.pools import create_pool

        if not Pool.objects.filter(cluster=self.cluster).exists():
            selector = {"matchLabels": {"kubernetes.io/os": "linux"}}
            create_pool(self.cluster, name="all", selector=selector, by=self.operator)
        return Pool.objects.select_related("cluster").get(cluster=self.cluster)

    def approve(self, plan: Any) -> Any:
        from jobs.approvals import reviews

        reviews.request(plan, by=self.operator)
        return reviews.approve(plan, by=self.approver, digest=plan.digest)

    def roll_out(self, plan: Any) -> None:
        from jobs import tasks
        from jobs.models import Rollout
        from jobs.rollouts import rollout_actions

        rollout = rollout_actions.start(plan, by=self.operator)
        tasks.wake(rollout.pk)
        self._until(lambda: not _refreshed(rollout).is_live, lambda: _progress(rollout))
        if rollout.status != Rollout.Status.SUCCEEDED:
            raise RuntimeError(f"the rollout ended as {rollout.status}: {_progress(rollout)}")

    def _label(self) -> None:
        kubectl = [str(self.stage.plane.bin / "kubectl"), f"--kubeconfig={self.stage.plane.kubeconfig}"]
        command = [*kubectl, "label", "nodes", "--all", "--overwrite", f"bench.setpoint.dev/run=r{self._runs}"]
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)

    def _until(self, done: Callable[[], bool], state: Callable[[], str]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not done():
            if self._agents.poll() is not None:
                log = self.stage.installation.folder / "agents.log"
                raise RuntimeError(f"the agents ended: {log.read_text(errors='replace')[-1500:]}")
            if time.monotonic() > deadline:
                logs = "\n".join(self.stage.installation.log(name, characters=1500) for name in PROCESSES)
                raise RuntimeError(f"{state()} after {PATIENCE_SECONDS:.0f} s\n{logs}")
            time.sleep(0.1)


def _children() -> float:
    """Seconds of CPU of programs that this process ran and waited for: kubectl."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _person(email: str, *roles: str) -> User:
    from accounts.models import RoleBinding, User

    user = User.objects.create_user(email)
    for role in roles:
        RoleBinding.objects.create(user=user, role=role, scope="*")
    return user


def _connected(stage: Stage, by: User) -> Cluster:
    from clusters.services.lifecycle import connect_cluster

    credential = stage.plane.credentials(token=stage.admin.controller_token())
    return connect_cluster(name="bench", environment="development", credential=credential, by=by)


def _refreshed(rollout: Rollout) -> Rollout:
    rollout.refresh_from_db()
    return rollout


def _progress(rollout: Rollout) -> str:
    counts = Counter(rollout.steps.values_list("status", flat=True))
    return f"{rollout.status}: {dict(counts)}"


def _writes(events: Iterable[dict[str, Any]]) -> Counter[str]:
    """Writes of nodes and NodeTunings, by Setpoint and by agents."""
    counted: Counter[str] = Counter()
    for event in events:
        if event["verb"] not in WRITES or event.get("objectRef", {}).get("resource") not in ("nodes", "nodetunings"):
            continue
        who = event.get("impersonatedUser", event["user"])["username"]
        if who.endswith("setpoint-controller"):
            counted["Setpoint"] += 1
        elif who.endswith("setpoint-agent"):
            counted["agents"] += 1
    return counted
