"""What is done with each component's real chart, through Setpoint's REST API, on a real control plane with kwok nodes.

No third party's chart is committed. The archives are read from ../shared/data/charts/archives beside the checkout, or
from the folder `archives` in the one that SETPOINT_CHARTS names; `make charts` fetches them.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from clusters.kube.apiserver import ApiServer
from components.catalog import catalog
from components.catalog.layering import layered
from components.catalog.values_check import judge
from components.charts import archives
from components.helm import client, releases, rendering
from contract import names
from tests.components.charts.test_real_archives import ARCHIVES, answered
from tests.controlplane.admin import Admin
from tests.controlplane.plane import LOOPBACK, Plane
from tests.full.harness.chart_table import Notes
from tests.full.harness.client import Problem, eventually
from tests.full.harness.equipping import DEFINITION, DEPLOY, OWN, RIGHTS
from tests.full.harness.site import ENDED, Site
from tests.full.harness.stand_ins import StandIns

BOTH = ("cilium", "gpu-operator", "kueue", "node-feature-discovery", "volcano")
"""With both helms in every run; of the others each with one, in turn."""
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
DISKS = [{"name": "nvme", "hostDir": "/mnt/nvme", "volumeMode": "Filesystem", "storageClass": True}]


@dataclass(frozen=True)
class Case:
    """How a component is tried: `old`, what it is upgraded from; `values`, what it is upgraded to."""

    name: str
    old: str
    new: str
    presets: tuple[str, ...] = ()
    base: Mapping[str, Any] = field(default_factory=dict)
    values: Mapping[str, Any] = field(default_factory=dict)
    adopted: str = ""
    """Release that plain helm makes and Setpoint adopts; empty: called as the component."""

    custom: str = ""
    """Object of a kind that goes with the release: approvers type that it is destroyed."""
    consent: str = ""

    @property
    def versions(self) -> str:
        return self.new if self.old == self.new else f"{self.old} → {self.new}"


FLAVOR = "{apiVersion: kueue.x-k8s.io/v1beta1, kind: ResourceFlavor, metadata: {name: spot}}"
TOPOLOGY = """
apiVersion: topology.node.k8s.io/v1alpha2
kind: NodeResourceTopology
metadata: {name: charts-1}
topologyPolicies: [None]
zones: [{name: node-0, type: Node}]
"""
ONE = "destroy 1 object in atlas"
CASES = (
    Case("cert-manager", "v1.21.1", "v1.21.1", ("ha",), values={"webhook": {"replicaCount": 2}}, adopted="certs"),
    Case("cilium", "1.19.6", "1.20.0", ("tunnel", "multus"), {"MTU": 1450}),
    Case("gpu-operator", "v26.3.3", "v26.7.0", ("host-driver", "mig-single"), adopted="gpu-operator-1764057600"),
    Case("kube-prometheus-stack", "88.5.3", "88.5.3", ("every-monitor", "no-kube-proxy"),
         values={"prometheus": {"prometheusSpec": {"retention": "5d"}}}, adopted="monitor"),
    Case("kueue", "0.18.6", "0.19.2", ("opt-in", "ha"), custom=FLAVOR, consent=ONE),
    Case("local-static-provisioner", "2.0.0", "2.9.0", base={"classes": DISKS}, adopted="disks"),
    Case("network-operator", "26.1.2", "26.4.1", adopted="network-operator-1764057600"),
    Case("node-feature-discovery", "0.18.3", "0.19.0", ("topology",), adopted="nfd", custom=TOPOLOGY, consent=ONE),
    Case("volcano", "1.14.4", "1.15.1", ("ha", "gang-and-reclaim"), adopted="batch", consent=ONE),
)  # fmt: skip


def chosen(helm: str) -> list[Case]:
    """Return the cases of a run with this helm."""
    every = os.environ.get("SETPOINT_ALL_CHARTS") == "1"
    turns = {case.name: ("v3", "v4")[number % 2] for number, case in enumerate(c for c in CASES if c.name not in BOTH)}
    return [case for case in CASES if every or turns.get(case.name, helm) == helm]


def archive(name: str, version: str) -> Path:
    """Return the file of a component's chart. Raises LookupError."""
    chart = catalog.get(name).chart.chart
    for path in (ARCHIVES / f"{chart}-{version}.tgz", ARCHIVES / f"{chart}-v{version}.tgz"):
        if path.exists():
            return path
    raise LookupError(f"{ARCHIVES} has no {chart}-{version}.tgz")


@dataclass
class Stage:
    """A site whose cluster may have components, and what is at hand there."""

    site: Site
    plane: Plane
    admin: Admin
    helm: client.Helm
    """For what Setpoint has no part in."""
    pool: int

    # ── past Setpoint ─────────────────────────────────────────────────────────────────────────────────────────────
    def by_hand(self, *arguments: str) -> str:
        """Run helm as an operator with cluster-admin does."""
        done = subprocess.run(
            [self.helm.program, *arguments, f"--kubeconfig={self.plane.kubeconfig}"],
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

    # ── through Setpoint ──────────────────────────────────────────────────────────────────────────────────────────
    def revision(self, case: Case, version: str, values: Mapping[str, Any] | None = None) -> str:
        entry: dict[str, Any] = {"version": version, "presets": list(case.presets)}
        entry["values"] = merged(case.base, values or {})
        source = yaml.safe_dump({"components": {case.name: entry}})
        return self.site.revision({}, profile=f"real-{case.name}", extra=source)

    def removal(self, case: Case) -> str:
        source = yaml.safe_dump({"components": {case.name: {"remove": True, "why": "It was only tried"}}})
        return self.site.revision({}, profile=f"real-{case.name}", extra=source)

    def planned(self, revision: str, action: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """A plan that nothing blocks, and its one component; the rights that it lacks are granted as it says."""
        plan, part = self._plan(revision)
        if part["rights"] and part["rights"]["lacking"]:
            self._grant(part)
            plan, part = eventually(lambda: self._granted(revision), lambda: self._lacks(revision), seconds=60)
        blocks = [f"{one['title']} {one['detail']}" for one in plan["findings"] if one["severity"] == "block"]
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

        eventually(over, lambda: self.site.story(rollout), seconds=PATIENCE)

    def revert(self, rollout: str) -> None:
        self.site.act(rollout, "revert")
        self.ends(rollout, "reverted")

    def until_state(self, case: Case, state: str) -> dict[str, Any]:
        def found() -> dict[str, Any] | None:
            rows = self.site.operator.every("compliance/components", name=case.name)
            return next((row for row in rows if row["state"] == state), None)

        def told() -> str:
            rows = self.site.operator.every("compliance/components", name=case.name)
            return str([{**row, "history": None} for row in rows])

        return dict(eventually(found, told, seconds=PATIENCE))


def merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    out = dict(below)
    for key, value in above.items():
        there = out.get(key)
        out[key] = merged(there, value) if isinstance(there, Mapping) and isinstance(value, Mapping) else value
    return out


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


# ── The operations ────────────────────────────────────────────────────────────────────────────────────────────────────
def render(case: Case, helm: client.Helm) -> None:
    """Each preset of the catalog's version, judged by the chart's keys and schema, and rendered."""
    component, content = catalog.get(case.name), archive(case.name, case.new).read_bytes()
    chart = archives.judge(content)
    for presets in ((), *((name, *preset.needs) for name, preset in component.presets.items())):
        ordered = tuple(name for name in component.presets if name in presets)
        values = layered(component, presets=ordered, cluster_values=answered(component, ordered))
        subcharts = frozenset(chart.subcharts)
        notes = judge(values, chart.values, chart.schema, text=chart.values_text, subcharts=subcharts)
        assert [str(note) for note in notes] == [], ordered
        job = client.HelmJob(case.name, component.namespace, deadline=time.monotonic() + 120)
        text = helm.template(job, content, values.values, kube_version=KUBERNETES)
        assert list(rendering.split(text, content)), ordered


def carry_through(stage: Stage, case: Case, notes: Notes) -> None:
    """All operations, in the order of the table."""
    component = catalog.get(case.name)
    space, release = component.namespace, case.name
    with notes.operation("render"):
        render(case, stage.helm)
    first = stage.revision(case, case.old)
    with notes.operation("fail"):
        _fail(stage, case, first, space)
    with notes.operation("install"):
        plan, _ = stage.planned(first, "upgrade" if stage.history(space, release).last else "install")
        stage.run(plan, "succeeded")
        stage.until_state(case, "compliant")
    with notes.operation("plan again"):
        stage.nothing_to_do(first)
    with notes.operation("drift"):
        changed = _drift(stage, case, space, release)
    with notes.operation("repair"):
        plan, part = stage.planned(first, "upgrade")
        shown = {(one["kind"], one["name"]): one["change"] for one in part["objects"]}
        assert shown == changed
        stage.run(plan, "succeeded")
        stage.until_state(case, "compliant")
    with notes.operation("upgrade"):
        plan, part = stage.planned(stage.revision(case, case.new, case.values), "upgrade")
        assert part["objects"]
        upgrade = stage.run(plan, "succeeded")
        stage.until_state(case, "compliant")
    with notes.operation("revert"):
        stage.revert(upgrade)
        stage.nothing_to_do(stage.revision(case, case.old))
    with notes.operation("remove"):
        objects = stage.manifest(space, release)
        if case.custom:
            stage.plane.kubectl("apply", "-f", "-", text=case.custom)
        plan, part = stage.planned(stage.removal(case), "remove")
        gone = {(one["kind"], one["name"]) for one in part["objects"] if one["change"] == "deleted"}
        kept = {(raw["kind"], raw["metadata"]["name"]) for raw in objects if is_kept(raw)}
        assert gone == {(raw["kind"], raw["metadata"]["name"]) for raw in objects} - kept
        assert plan["summary"]["consent"] == case.consent
        removal = stage.run(plan, "succeeded")
        deleted = [raw for raw in objects if not is_kept(raw) and raw["kind"] != "Namespace"]
        assert len(stage.absent(deleted, space)) == len(deleted), stage.absent(deleted, space)
    with notes.operation("bring back"):
        stage.revert(removal)
        assert not (missing := stage.absent(objects, space)), missing
        stage.nothing_to_do(stage.revision(case, case.old))
    stage.by_hand("uninstall", release, f"--namespace={space}")
    stage.plane.kubectl("delete", "secret", "-n", space, "-l", f"owner=helm,name={release}", "--ignore-not-found")
    _adopt(stage, case, notes, space)


def _fail(stage: Stage, case: Case, revision: str, space: str) -> None:
    """A quota that came after the plan lets helm fail half way; once it is gone, the same revision is planned again."""
    plan, _ = stage.planned(revision, "install")
    stage.site.approve(plan)
    if not stage.admin.find("namespaces", space):
        stage.plane.kubectl("create", "namespace", space)
        level = f"pod-security.kubernetes.io/enforce={catalog.get(case.name).pod_security}"
        stage.plane.kubectl("label", "namespace", space, level)
    stage.admin.create("resourcequotas", QUOTA, space)
    stage.admin.wait("resourcequotas", "none-yet", space, until=lambda raw: (raw.get("status") or {}).get("hard"))
    rollout = stage.site.start(plan)
    step = stage.site.until_step(rollout, case.name, "failed", says="exceeded quota", seconds=PATIENCE)
    assert "none-yet" in step["error"]
    stage.admin.delete("resourcequotas", "none-yet", space)
    stage.ends(rollout, "failed", "stopped")
    if stage.site.rollout(rollout)["status"] not in ENDED:
        stage.site.give_up(rollout)


def is_kept(raw: Mapping[str, Any]) -> bool:
    """helm deletes no such object."""
    return bool((raw["metadata"].get("annotations") or {}).get("helm.sh/resource-policy") == "keep")


def _drift(stage: Stage, case: Case, space: str, release: str) -> dict[tuple[str, str], str]:
    """Another image of a workload, and an object less; compliance tells of both. What a repair has to show of them."""
    objects = stage.manifest(space, release)
    workload = next(raw for raw in objects if raw["kind"] in ("DaemonSet", "Deployment"))
    victim = next(raw for raw in objects if raw["kind"] in ("ConfigMap", "ServiceAccount"))
    kind, name = workload["kind"], workload["metadata"]["name"]
    where = ("-n", workload["metadata"].get("namespace") or space)
    container = workload["spec"]["template"]["spec"]["containers"][0]["name"]
    image = f"{container}=registry.example/other:1"
    stage.plane.kubectl("set", "image", f"{kind}/{name}", image, *where, "--field-manager=mallory")
    where = ("-n", victim["metadata"].get("namespace") or space)
    stage.plane.kubectl("delete", victim["kind"], victim["metadata"]["name"], *where)

    def both() -> bool:
        row = stage.until_state(case, "drifted")
        told = {(one["kind"], one["name"]) for one in row["differences"]}
        return told == {(kind, name), (victim["kind"], victim["metadata"]["name"])}

    eventually(both, lambda: str(stage.until_state(case, "drifted")["differences"]), seconds=PATIENCE)
    return {(kind, name): "changed", (victim["kind"], victim["metadata"]["name"]): "created"}


def _adopt(stage: Stage, case: Case, notes: Notes, space: str) -> None:
    """What plain helm installed, as a person does: under a name of their own, with values of their own."""
    release = case.adopted or case.name
    chart, component = archive(case.name, case.old), catalog.get(case.name)
    values = layered(component, case.old, case.presets, case.base).values
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(values, file)
        file.flush()
        stage.by_hand("install", release, str(chart), f"--namespace={space}", "--create-namespace", f"-f={file.name}")
    with notes.operation("adopt"):
        plan, _ = stage.planned(stage.revision(case, case.new, case.values), "adopt")
        adoption = stage.run(plan, "succeeded")
        stage.until_state(case, "compliant")
        assert stage.history(space, release).last
        assert stage.history(space, case.name).last is None or release == case.name
    with notes.operation("give back"):
        stage.revert(adoption)
        last = stage.history(space, release).last
        assert last is not None
        assert last.read().chart_version == archives.judge(chart.read_bytes()).version
    stage.by_hand("uninstall", release, f"--namespace={space}")


def tidy(stage: Stage, case: Case, definitions: Sequence[str]) -> None:
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
    _forget(stage, definitions)
    role = f"setpoint-component-{case.name}"
    stage.plane.kubectl("delete", "clusterrole,clusterrolebinding", role, "--ignore-not-found")


def _forget(stage: Stage, known: Sequence[str]) -> None:
    """Delete the definitions that are not known.

    An API server that could not list a definition's objects tries again after up to minutes; a change makes it look.
    """

    def others() -> list[str]:
        found = stage.plane.kubectl("get", "crd", "-o", "name").split()
        return [name for name in found if name.partition("/")[2] not in known]

    def gone() -> bool:
        if left := others():
            with suppress(RuntimeError):  # one that went meanwhile
                stage.plane.kubectl("annotate", *left, f"nudge={time.monotonic_ns()}", "--overwrite")
        return not left

    if left := others():
        stage.plane.kubectl("delete", "--wait=false", *left)
        eventually(gone, lambda: str(others()), pause=1.0)
