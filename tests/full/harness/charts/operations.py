"""Operations on each component's real chart, in the order of the table in docs/components.md."""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Mapping
from typing import Any

from components.catalog import catalog
from components.catalog.layering import layered
from components.catalog.values_check import judge
from components.charts import archives
from components.helm import client, rendering
from tests.components.charts.test_real_archives import answered
from tests.full.harness.charts.cases import Case, archive
from tests.full.harness.charts.stage import KUBERNETES, PATIENCE, QUOTA, Stage
from tests.full.harness.charts.table import Notes
from tests.full.harness.client import eventually
from tests.full.harness.site import ENDED


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
    """Do all operations, in the order of the table."""
    with notes.operation("render"):
        render(case, stage.helm)
    space, first = catalog.get(case.name).namespace, stage.revision(case, case.old)
    with notes.operation("fail"):
        _fail(stage, case, first, space)
    with notes.operation("install"):
        plan, _ = stage.planned(first, "upgrade" if stage.history(space, case.name).last else "install")
        stage.run(plan, "succeeded")
        stage.until_state(case, "compliant")
    with notes.operation("plan again"):
        stage.nothing_to_do(first)
    _change(stage, case, notes, first)
    _take_away(stage, case, notes)
    stage.by_hand("uninstall", case.name, f"--namespace={space}")
    stage.plane.kubectl("delete", "secret", "-n", space, "-l", f"owner=helm,name={case.name}", "--ignore-not-found")
    stage.forget()
    eventually(lambda: "Terminating" not in stage.plane.kubectl("get", "namespaces"))
    _adopt(stage, case, notes, space)


def _change(stage: Stage, case: Case, notes: Notes, first: str) -> None:
    """Repair what was changed by hand, upgrade, and go back."""
    with notes.operation("drift"):
        changed = _drift(stage, case, catalog.get(case.name).namespace, case.name)
    with notes.operation("repair"):
        plan, part = stage.planned(first, "upgrade")
        shown = {(difference["kind"], difference["name"]): difference["change"] for difference in part["objects"]}
        assert shown == changed, (shown, changed)
        stage.run(plan, "succeeded")
        stage.until_state(case, "compliant")
    with notes.operation("upgrade"):
        plan, part = stage.planned(stage.revision(case, case.new, case.values), "upgrade")
        assert part["objects"]
        stage.renew(case)
        upgrade = stage.run(plan, "succeeded")
        stage.until_state(case, "compliant")
    with notes.operation("revert"):
        stage.revert(upgrade)
        stage.nothing_to_do(stage.revision(case, case.old))


def _take_away(stage: Stage, case: Case, notes: Notes) -> None:
    """Remove it as a new revision says, with consent where objects of its kinds go; and put it back."""
    space = catalog.get(case.name).namespace
    with notes.operation("remove"):
        objects = stage.manifest(space, case.name)
        if case.custom:
            stage.plane.kubectl("apply", "-f", "-", text=case.custom)
        plan, part = stage.planned(stage.removal(case), "remove")
        gone = {
            (difference["kind"], difference["name"])
            for difference in part["objects"]
            if difference["change"] == "deleted"
        }
        wanted = {(raw["kind"], raw["metadata"]["name"]) for raw in objects if not is_kept(raw)}
        assert gone == wanted, gone ^ wanted
        assert plan["summary"]["consent"] == case.consent, plan["summary"]
        removal = stage.run(plan, "succeeded")
        deleted = [raw for raw in objects if not is_kept(raw) and raw["kind"] != "Namespace"]
        assert len(stage.absent(deleted, space)) == len(deleted), stage.absent(deleted, space)
    with notes.operation("bring back"):
        stage.revert(removal)
        assert not (missing := stage.absent(objects, space)), missing
        stage.nothing_to_do(stage.revision(case, case.old))


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
        named = {(difference["kind"], difference["name"]) for difference in row["differences"]}
        return named == {(kind, name), (victim["kind"], victim["metadata"]["name"])}

    eventually(both, lambda: str(stage.until_state(case, "drifted")["differences"]), seconds=PATIENCE)
    return {(kind, name): "changed", (victim["kind"], victim["metadata"]["name"]): "created"}


def _adopt(stage: Stage, case: Case, notes: Notes, space: str) -> None:
    """Adopt what plain helm installed, as a person does: under a name and with values of their own."""
    release = case.adopted or case.name
    chart, component = archive(case.name, case.old), catalog.get(case.name)
    values = layered(component, case.old, case.presets, case.base).values
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        json.dump(values, file)
        file.flush()
        stage.by_hand("install", release, str(chart), f"--namespace={space}", "--create-namespace", f"-f={file.name}")
    with notes.operation("adopt"):
        plan, _ = stage.planned(stage.revision(case, case.new, case.values), "adopt")
        stage.renew(case)
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
