"""A stage for the real charts: a whole Setpoint that is asked over REST, on a real control plane with kwok nodes.

No third party's chart is committed. The archives are read from ../shared/data/charts/archives beside the checkout, or
from the folder `archives` in the one that SETPOINT_CHARTS names; `make charts` fetches them.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from clusters.kube.apiserver import ApiServer
from components.catalog import catalog
from components.helm import client, releases, rendering
from contract import names
from profiles.document import document
from tests.controlplane.admin import Admin
from tests.controlplane.plane import LOOPBACK, Plane
from tests.full.harness import definitions
from tests.full.harness.charts.cases import CASES, Case, archive
from tests.full.harness.charts.stand_ins import StandIns
from tests.full.harness.client import Problem, eventually
from tests.full.harness.equipping import DEFINITION, DEPLOY, OWN, RIGHTS
from tests.full.harness.site import ENDED, Site

KUBERNETES = "v1.35.4"
PATIENCE = 240.0
NODES = ("charts-1", "charts-2")
OTHER_NETWORK = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: kindnet, namespace: kube-system}
spec:
  selector: {matchLabels: {app: kindnet}}
  template:
    metadata: {labels: {app: kindnet}}
    spec:
      tolerations: [{operator: Exists}]
      containers: [{name: kindnet, image: registry.example/kindnet}]
"""
"""Where no other CNI runs, Cilium is not removed."""
QUOTA = {
    "apiVersion": "v1",
    "kind": "ResourceQuota",
    "metadata": {"name": "none-yet"},
    "spec": {"hard": {"count/deployments.apps": "0", "count/daemonsets.apps": "0"}},
}


@dataclass
class Stage:
    """A site whose cluster may have components, and what is at hand there."""

    site: Site
    plane: Plane
    admin: Admin
    helm: client.Helm
    """For what Setpoint has no part in."""
    pool: int
    known: frozenset[str] = frozenset()
    """Definitions that were there before the component."""
    patience: float = PATIENCE
    """Seconds for one rollout, or for one state of a component."""

    # ── outside Setpoint ─────────────────────────────────────────────────────────────────────────────────────────────
    def by_hand(self, *arguments: str) -> str:
        """Run helm as an operator with cluster-admin does."""
        return self.helm_output(*arguments, f"--kubeconfig={self.plane.kubeconfig}")

    def helm_output(self, *arguments: str) -> str:
        done = subprocess.run(
            [self.helm.program, *arguments],
            capture_output=True,
            text=True,
            check=False,
            env={"HOME": str(self.plane.folder)},
            timeout=180,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def history(self, namespace: str, release: str) -> releases.ReleaseHistory:
        server = ApiServer(self.plane.admin, policy=LOOPBACK)
        try:
            return releases.history(server, namespace, release)
        finally:
            server.close()

    def manifest(self, namespace: str, release: str) -> list[dict[str, Any]]:
        """Objects of the revision in force, as helm recorded them."""
        deployed = self.history(namespace, release).deployed
        assert deployed is not None
        return [raw for raw, _ in rendering.split(deployed.read().manifest.encode())]

    def absent(self, objects: Sequence[Mapping[str, Any]], namespace: str) -> list[str]:
        """Return those that the cluster lacks."""
        return [f"{raw['kind']} {raw['metadata']['name']}" for raw in objects if not self.is_there(raw, namespace)]

    def is_there(self, raw: Mapping[str, Any], namespace: str) -> bool:
        meta = raw["metadata"]
        group = str(raw["apiVersion"]).rpartition("/")[0]
        kind = f"{raw['kind']}.{raw['apiVersion'].rpartition('/')[2]}.{group}" if group else raw["kind"]
        where = ("-n", meta.get("namespace") or namespace)
        return bool(self.plane.kubectl("get", kind, meta["name"], *where, "--ignore-not-found", "-o", "name"))

    def definitions(self) -> frozenset[str]:
        return definitions.present(self.plane)

    def forget(self) -> None:
        """Delete the definitions that came with the component."""
        definitions.delete(self.plane, self.definitions() - self.known)

    def renew(self, case: Case) -> None:
        """Apply the definitions of the new chart, where a hook of it does so, whose pods do nothing here."""
        if case.is_renewed:
            text = self.helm_output("show", "crds", str(archive(case.name, case.new)))
            self.plane.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", text=text)

    # ── through Setpoint ──────────────────────────────────────────────────────────────────────────────────────────
    def revision(self, case: Case, version: str, values: Mapping[str, Any] | None = None) -> str:
        source = case.source(version, values or {})
        return self.site.revision({}, profile=f"real-{case.name}", extra=source)

    def removal(self, case: Case) -> str:
        source = document.dump({"components": {case.name: {"remove": True, "why": "It was only tried"}}})
        return self.site.revision({}, profile=f"real-{case.name}", extra=source)

    def planned(self, revision: str, action: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """A plan that nothing blocks, and its one component; the rights that it lacks are granted as it says."""
        plan, part = self._plan(revision)
        if part["rights"] and part["rights"]["lacking"]:
            self._grant(part)
            plan, part = eventually(lambda: self._granted(revision), lambda: self._lacks(revision), seconds=60)
        blocks = [
            f"{finding['title']} {finding['detail']}" for finding in plan["findings"] if finding["severity"] == "block"
        ]
        assert blocks == []
        assert part["action"] == action, (part["action"], part["left_out"], part["objects"], part["notes"])
        return plan, part

    def nothing_to_do(self, revision: str) -> None:
        """Check that a plan of it would change no object."""
        try:
            _, part = self._plan(revision)
        except Problem as refused:
            if refused.status != 409 or "nothing to plan" not in str(refused):
                raise
        else:
            assert (part["action"], part["objects"]) == ("none", []), (part["action"], part["objects"], part["notes"])

    def _plan(self, revision: str) -> tuple[dict[str, Any], dict[str, Any]]:
        plan = self.site.plan(self.pool, revision, canary=0, batch="100%")
        parts = self.site.operator.every(f"plans/{plan['id']}/components")
        assert len(parts) == 1, plan["findings"]
        return plan, parts[0]

    def _granted(self, revision: str) -> tuple[dict[str, Any], dict[str, Any]] | None:
        plan, part = self._plan(revision)
        return None if part["rights"] and part["rights"]["lacking"] else (plan, part)

    def _lacks(self, revision: str) -> str:
        _, part = self._plan(revision)
        return str([rule for rule in part["rights"]["rules"] if rule["lacks"]])

    def _grant(self, part: Mapping[str, Any]) -> None:
        """Apply the role as the cluster's administrator does, with what its comments say to do before."""
        role = str(part["rights"]["role"])
        if "# WITHHELD" in role:
            arguments = ("--profile", f"real-{part['component']}", "--dangerous")
            role = self.site.setpoint.manage("component_rights", str(self.site.cluster["name"]), *arguments)
        for space, more in re.findall(r"^# .*: kubectl create namespace (\S+)(.*)$", role, re.MULTILINE):
            if not self.admin.find("namespaces", space):
                self.plane.kubectl("create", "namespace", space)
                for command in more.split(" && kubectl ")[1:]:
                    self.plane.kubectl(*command.split())
        self.plane.kubectl("apply", "-f", "-", text=role)

    def run(self, plan: Mapping[str, Any], *ends: str) -> str:
        self.site.approve(plan)
        rollout = self.site.start(plan)
        self.ends(rollout, *ends)
        return rollout

    def ends(self, rollout: str, *ends: str) -> None:
        """Wait until it has one of these statuses. Fails as soon as it has ended otherwise."""
        others = {*ENDED, "stopped"} - {*ends}

        def over() -> bool:
            status = self.site.rollout(rollout)["status"]
            assert status not in others, self.site.story(rollout)
            return status in ends

        eventually(over, lambda: self.site.story(rollout), seconds=self.patience)

    def revert(self, rollout: str) -> None:
        self.site.act(rollout, "revert")
        self.ends(rollout, "reverted")

    def until_state(self, case: Case, state: str) -> dict[str, Any]:
        def row_in_state() -> dict[str, Any] | None:
            rows = self.site.operator.every("compliance/components", name=case.name)
            return next((row for row in rows if row["state"] == state), None)

        def rows_as_text() -> str:
            rows = self.site.operator.every("compliance/components", name=case.name)
            return str([{**row, "history": None} for row in rows])

        return dict(eventually(row_in_state, rows_as_text, seconds=self.patience))


@contextmanager
def staged(site: Site, plane: Plane, admin: Admin, helm: client.Helm, pool: int) -> Iterator[Stage]:
    """The stores of charts filled over REST, both identities and a helm worker, and stand-ins for operators."""
    plane.kubectl("apply", "-f", str(RIGHTS), "-f", str(DEPLOY / "setpoint-policies.yaml"))
    plane.kubectl("apply", "-f", "-", text=OTHER_NETWORK)
    for name in OWN:
        plane.kubectl("apply", "-f", "-", text=DEFINITION.replace("PLURAL", name))
    for name in NODES:
        plane.kubectl("label", "node", name, "nvidia.com/gpu.present=true")
    for case in CASES:
        for version in {case.old, case.new}:
            site.admin.upload("chart-archives", archive=archive(case.name, version))
    issuer = admin.token(names.HELM_ISSUER_SERVICE_ACCOUNT)
    site.setpoint.manage("helm_credential", str(site.cluster["name"]), text=issuer)
    site.setpoint.start("helm")
    site.set_budget(len(NODES))
    stand_ins = StandIns(plane)
    stand_ins.start()
    yield Stage(site, plane, admin, helm, pool)
    stand_ins.stop()
    # Others use this control plane next, and some look at what each identity may do there.
    for file in (RIGHTS, DEPLOY / "setpoint-policies.yaml"):
        plane.kubectl("delete", "--ignore-not-found", "-f", str(file))


def tidy(stage: Stage, case: Case) -> None:
    """Leave nothing to the next component: no release, no definition, no rights, no rollout."""
    for rollout in stage.site.operator.every("rollouts"):
        if rollout["status"] not in ENDED:
            stage.site.give_up(rollout["id"])
    space = catalog.get(case.name).namespace
    for release in {case.name, case.adopted or case.name}:
        if stage.history(space, release).revisions:
            stage.by_hand("uninstall", release, f"--namespace={space}", "--no-hooks", "--ignore-not-found")
            stage.plane.kubectl("delete", "secret", "-n", space, "-l", f"owner=helm,name={release}")
    stage.plane.kubectl("delete", "resourcequota", "none-yet", "-n", space, "--ignore-not-found")
    stage.forget()
    role = f"setpoint-component-{case.name}"
    stage.plane.kubectl("delete", "clusterrole,clusterrolebinding", role, "--ignore-not-found")
