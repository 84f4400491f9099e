"""Real charts, installed by Setpoint and by helm alone, in turns on one cluster.

Nodes are kwok's: each pod is ready as soon as it is scheduled, so what is compared is the work of installing and of
seeing that it is ready, not the pulling of images. helm gets the values that Setpoint gave it. Archives are those of
the tests, which `make charts` fetches.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.components import spent_on
from bench.measure import Table, load, median, seconds
from bench.rollout import Campaign
from bench.stage import DEPLOY, Stage
from contract import names

if TYPE_CHECKING:
    from tests.full.harness.charts.cases import Case

CHARTS = ("cilium", "gpu-operator", "kube-prometheus-stack")
NODES = 3
STRATEGY = {"canary": 0, "batch": "100%"}


def measure(stage: Stage, turns: int) -> list[Table]:
    installs = Table(
        "An install of a real chart",
        [
            "chart",
            "objects",
            "Setpoint, s",
            "slowest",
            "`helm upgrade --install --wait`, s",
            "slowest",
            "ratio",
            "load",
        ],
        f"Medians of {turns} turns each, one after the other, uninstalled between and its definitions deleted: from "
        "the start of an approved rollout to succeeded in the database, and the same chart with the same values by "
        "helm alone.",
    )
    parts = Table(
        "Where such an install's time goes",
        ["chart", "until helm's worker begins, s", "check and helm, s", "until it is seen ready, s"],
        "Medians of the same turns. Check: the chart is rendered once more, and its definitions are created.",
    )
    from tests.full.harness.charts.cases import CASES
    from tests.full.harness.charts.stand_ins import StandIns
    from tests.full.harness.equipping import DEFINITION, OWN

    stage.plane.kubectl("apply", "--server-side", "-f", str(DEPLOY / "setpoint-components.yaml"))
    for account in (names.HELM_SERVICE_ACCOUNT, names.CONTROLLER_SERVICE_ACCOUNT):
        # Which rights each needs is not measured here.
        role = ("clusterrolebinding", f"bench-{account}", "--clusterrole=cluster-admin")
        stage.plane.kubectl("create", *role, f"--serviceaccount={names.NAMESPACE}:{account}")
    for kind in OWN:  # without which Cilium is not ready, and which its operator makes, whose image does not run here
        stage.plane.kubectl("apply", "-f", "-", text=DEFINITION.replace("PLURAL", kind))
    with Campaign(stage) as campaign, tempfile.TemporaryDirectory(prefix="setpoint-bench-") as folder:
        issuer = stage.admin.token(names.HELM_ISSUER_SERVICE_ACCOUNT)
        stage.installation.manage("helm_credential", campaign.cluster.name, text=issuer)
        stage.installation.start("helm")
        campaign.grow(NODES)
        stage.plane.kubectl("label", "nodes", "--all", "nvidia.com/gpu.present=true")
        stand_ins = StandIns(stage.plane)
        stand_ins.start()
        try:
            for case in (case for case in CASES if case.name in CHARTS):
                chart = RealChart(campaign, Path(folder), case)
                installs.add(*chart.installed(turns))
                parts.add(case.name, *(median(part) for part in zip(*chart.parts, strict=True)))
        finally:
            stand_ins.stop()
    return [installs, parts]


class RealChart:
    """One component of the catalog with its real chart."""

    def __init__(self, campaign: Campaign, folder: Path, case: Case) -> None:
        from components.catalog import catalog
        from components.charts import archives
        from components.helm import client
        from tests.full.harness import definitions
        from tests.full.harness.charts.cases import archive

        self.campaign, self.case = campaign, case
        self.plane = campaign.stage.plane
        self.namespace = catalog.get(case.name).namespace
        self.parts: list[tuple[float, ...]] = []
        self._helm, self._archive = client.program(), archive(case.name, case.old)
        self._values = folder / f"{case.name}.yaml"
        self._known = definitions.present(self.plane)
        self._runs = 0
        archives.store(self._archive.read_bytes(), origin="uploaded", by="bench")

    def installed(self, turns: int) -> tuple[object, ...]:
        ours, theirs, objects = [], [], 0
        for _ in range(turns):
            plan = self.campaign.approve(self._plan())
            ours.append(seconds(partial(self.campaign.roll_out, plan)))
            self.parts.append(spent_on(plan, self.case.name))
            objects = self._run_helm("get", "manifest", self.case.name).count("\nkind:")
            self._values.write_text(self._run_helm("get", "values", self.case.name, "--output=yaml"))
            self.remove()
            theirs.append(seconds(self._install_by_helm))
            self.remove()
        mine, plain = median(ours), median(theirs)
        ratio = f"{mine / plain:.2f}"
        return f"{self.case.name} {self.case.old}", objects, mine, max(ours), plain, max(theirs), ratio, load()

    def remove(self) -> None:
        """Leave no release, no definition, and nothing that is still going."""
        from tests.full.harness import definitions

        with suppress(subprocess.CalledProcessError):  # there is none
            self._run_helm("uninstall", self.case.name, "--wait", "--no-hooks")
        definitions.delete(self.plane, definitions.present(self.plane) - self._known)

    def _install_by_helm(self) -> None:
        self._run_helm(
            "upgrade", "--install", self.case.name, str(self._archive), "--wait", "--timeout=5m",
            f"--values={self._values}", "--create-namespace",
        )  # fmt: skip

    def _plan(self) -> Any:
        self._runs += 1
        name = f"real-{self.case.name}-{self._runs}"
        return self.campaign.plan(name, self.case.source(self.case.old, {}), STRATEGY)

    def _run_helm(self, *arguments: str) -> str:
        command = [self._helm.program, *arguments, f"--namespace={self.namespace}"]
        command.append(f"--kubeconfig={self.plane.kubeconfig}")
        # Not the caller's own repositories and plug-ins.
        environment = {**os.environ, "HOME": str(self.plane.folder)}
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
