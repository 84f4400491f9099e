"""A chart of 100 objects, planned and installed: against kubectl diff and helm, in turns on the same cluster.

The chart stands for the catalog's smallest component, which needs nothing but its DaemonSet: nobody else's chart is
fetched. Plans are made by this process as a web process does; what they lead to, the worker and the helm worker do.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.measure import Table, load, median, seconds
from bench.rollout import Campaign
from bench.stage import DEPLOY, Stage
from contract import names

if TYPE_CHECKING:
    from components.helm.client import Helm

COMPONENT, VERSION, NAMESPACE = "local-static-provisioner", "2.9.0", "kube-system"
CLASSES = [{"name": "local-nvme", "hostDir": "/mnt/local-nvme"}]
"""Which disks, which the catalog leaves to a person; this chart does nothing with it."""
OBJECTS = 100
NODES = 3
TURNS = 5
STRATEGY = {"canary": 0, "batch": "100%"}
CONFIG = """\
{{- range $number := until %d }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: "{{ $.Release.Name }}-{{ $number }}", labels: {app: {{ $.Release.Name }}}}
data:
  number: "{{ $number }}"
  color: {{ $.Values.color | quote }}
  text: |
{{- range $line := until 20 }}
    line {{ $line }} of {{ $number }}
{{- end }}
{{- end }}
"""
DAEMON = """\
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: {{ .Release.Name }}}
spec:
  selector: {matchLabels: {app: {{ .Release.Name }}}}
  template:
    metadata: {labels: {app: {{ .Release.Name }}}}
    spec:
      tolerations: [{operator: Exists}]
      containers: [{name: main, image: "registry.example.org/main:{{ .Chart.Version }}"}]
"""


def measure(stage: Stage) -> list[Table]:
    plans = Table(
        "A plan of a chart with 100 objects",
        ["what the cluster has", "plan, s", "of it rendering, s", "`kubectl diff`, s", "ratio", "CPU ratio", "load"],
        f"Medians of {TURNS} turns each, one after the other: the plan of a profile that wants one component and "
        "nothing else (rendered twice, compared by dry run, stored), and kubectl diff of the same objects, which are "
        "rendered for it beforehand and not counted.",
    )
    installs = Table(
        "An install",
        ["chart", "Setpoint, s", "slowest", "`helm upgrade --install --wait`, s", "slowest", "ratio", "load"],
        f"Medians of {TURNS} turns each, one after the other, uninstalled between: from the start of an approved "
        "rollout to succeeded in the database, and the same chart by helm alone. Each node's step, which changes "
        "nothing, and the check that the chart still renders to what was approved are in it.",
    )
    parts = Table(
        "Where an install's time goes",
        [
            "chart",
            "until helm's worker begins, s",
            "check and helm, s",
            "until it is seen ready, s",
        ],
        "Medians of the same turns. Before helm's worker begins, nodes have their steps; check: the chart is rendered "
        "once more.",
    )
    stage.plane.kubectl("apply", "--server-side", "-f", str(DEPLOY / "setpoint-components.yaml"))
    with Campaign(stage) as campaign, tempfile.TemporaryDirectory(prefix="setpoint-bench-") as folder:
        issuer = stage.admin.token(names.HELM_ISSUER_SERVICE_ACCOUNT)
        stage.installation.manage("helm_credential", campaign.cluster.name, text=issuer)
        stage.installation.start("helm")
        campaign.grow(NODES)
        for objects in (1, OBJECTS):
            chart = Chart(campaign, Path(folder), objects)
            installs.add(*chart.installed())
            parts.add(*chart.spent())
            if objects == OBJECTS:
                plans.add("nothing of it", *chart.planned("blue"))
                chart.install_by_helm()
                plans.add("all of it, with another value", *chart.planned("red"))
            chart.remove()
    return [plans, installs, parts]


class Chart:
    """One chart, by Setpoint and by the tools."""

    def __init__(self, campaign: Campaign, folder: Path, objects: int) -> None:
        from components.charts import archives
        from components.helm import client
        from tests.components.packing import packed

        self.campaign, self.objects, self._runs = campaign, objects, 0
        self._parts: list[tuple[float, ...]] = []
        self._helm: Helm = client.program()
        files = {
            "Chart.yaml": f"apiVersion: v2\nname: {COMPONENT}\nversion: {VERSION}\ndescription: {objects} objects\n",
            "values.yaml": "color: green\nclasses: []\n",
            "templates/daemon.yaml": DAEMON,
            "templates/config.yaml": CONFIG % (objects - 1),
        }
        content = packed(files, COMPONENT)
        archives.store(content, origin="uploaded", by="bench")
        self._archive = folder / f"chart-{objects}.tgz"
        self._archive.write_bytes(content)
        self._manifest = folder / f"manifest-{objects}.yaml"

    # ── installs ──────────────────────────────────────────────────────────────────────────────────────────────────
    def installed(self) -> tuple[object, ...]:
        ours, theirs = [], []
        for _ in range(TURNS):
            plan = self.campaign.approve(self._plan("blue"))
            ours.append(seconds(partial(self.campaign.roll_out, plan)))
            self._parts.append(spent_on(plan, COMPONENT))
            self.remove()
            theirs.append(seconds(self.install_by_helm))
            self.remove()
        mine, plain = median(ours), median(theirs)
        return f"{self.objects} objects", mine, max(ours), plain, max(theirs), f"{mine / plain:.2f}", load()

    def spent(self) -> tuple[object, ...]:
        """Return the median seconds of each part of these installs, after the number of objects."""
        return f"{self.objects} objects", *(median(part) for part in zip(*self._parts, strict=True))

    def install_by_helm(self) -> None:
        self._run_helm("upgrade", "--install", COMPONENT, str(self._archive), "--wait", "--set=color=blue")

    def remove(self) -> None:
        with suppress(subprocess.CalledProcessError):  # there is none
            self._run_helm("uninstall", COMPONENT, "--wait")

    # ── plans ─────────────────────────────────────────────────────────────────────────────────────────────────────
    def planned(self, color: str) -> tuple[object, ...]:
        from components.helm import rendering

        rendered = self._run_helm("template", COMPONENT, str(self._archive), f"--set=color={color}")
        self._manifest.write_text(rendered)
        ours, theirs, rendering_took = [], [], []
        plain = rendering.render

        def timed(*given: Any, **how: Any) -> Any:
            out: list[Any] = []
            rendering_took.append(seconds(lambda: out.append(plain(*given, **how))))
            return out[0]

        cpu: dict[str, float] = {"ours": 0.0, "theirs": 0.0}
        rendering.render = timed
        try:
            for _ in range(TURNS):
                cpu["ours"] += self._cpu(lambda: ours.append(seconds(lambda: self._plan(color))))
                cpu["theirs"] += self._cpu(lambda: theirs.append(seconds(self._diff)))
        finally:
            rendering.render = plain
        mine, other = median(ours), median(theirs)
        ratios = f"{mine / other:.2f}", f"{cpu['ours'] / cpu['theirs']:.2f}"
        return mine, median(rendering_took), other, *ratios, load()

    def _cpu(self, action: Callable[[], object]) -> float:
        """Seconds of CPU of this process, what it runs, and the stage; without what else the machine does."""
        began = time.process_time()
        _took, spent, _used = self.campaign.measured(action)
        return time.process_time() - began + sum(taken for name, taken in spent.items() if name != "others")

    def _plan(self, color: str) -> Any:
        self._runs += 1
        wants = {COMPONENT: {"version": VERSION, "values": {"color": color, "classes": CLASSES}}}
        name = f"chart-{self.objects}-{color}-{self._runs}"
        return self.campaign.plan(name, json.dumps({"components": wants}), STRATEGY)

    def _diff(self) -> None:
        plane = self.campaign.stage.plane
        command = [str(plane.bin / "kubectl"), f"--kubeconfig={plane.kubeconfig}", "diff", f"--namespace={NAMESPACE}"]
        done = subprocess.run([*command, "-f", str(self._manifest)], capture_output=True, check=False)
        if done.returncode > 1:
            raise RuntimeError(f"kubectl diff: {done.stderr.decode()[-2000:]}")

    def _run_helm(self, *arguments: str) -> str:
        command = [self._helm.program, *arguments, f"--namespace={NAMESPACE}"]
        command.append(f"--kubeconfig={self.campaign.stage.plane.kubeconfig}")
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def spent_on(plan: Any, component: str) -> tuple[float, float, float]:
    """Return the seconds of a component's step: before its worker began, while helm ran, until it was seen ready."""
    from jobs.models import Step

    step = Step.objects.select_related("rollout").get(rollout__plan=plan, component=component)
    at = dict(step.events.values_list("text", "at"))
    assert step.granted_at
    began, ended = step.granted_at, at["helm succeeded."]
    parts = began - step.rollout.created_at, ended - began, at["Ready."] - ended
    waited, ran, settled = (part.total_seconds() for part in parts)
    return waited, ran, settled
