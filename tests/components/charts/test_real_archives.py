"""Laws that hold of every real chart's archive, rendered by helm without a cluster.

No third party's chart is committed. The archives are read from ../shared/data/charts/archives beside the checkout, or
from the folder `archives` in the one that SETPOINT_CHARTS names.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import tarfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import yaml

from components.catalog import catalog
from components.catalog.entry import Component, look_up
from components.catalog.layering import excluded, layered
from components.catalog.values_check import judge
from components.charts import archives
from components.helm import client, rendering
from components.release.readiness import _is_meant
from tests.components.charts.test_real_charts import CHARTS

ARCHIVES = CHARTS / "archives"
ALL = sorted(ARCHIVES.glob("*.tgz"))

pytestmark = pytest.mark.skipif(not ALL, reason=f"needs charts: there are no archives in {ARCHIVES}")


def template(archive: Path, *arguments: str) -> bytes | None:
    """None: it does not render with its own values alone."""
    command = [client.program().program, "template", "one", str(archive), "--kube-version=v1.35.0", *arguments]
    done = subprocess.run(command, capture_output=True, check=False, timeout=120)
    return None if done.returncode else done.stdout


def has_folder_of_definitions(archive: Path) -> bool:
    """Tell whether the chart, or one inside it, has a folder `crds`, by the archive's own list of names."""
    with tarfile.open(archive) as packed:
        return any("crds" in name.split("/")[1:-1] for name in packed.getnames())


@pytest.mark.parametrize("archive", ALL, ids=lambda path: path.stem)
def test_definitions_of_the_folder_crds_are_told_from_templates(archive):
    """helm itself can leave them out: what is left then are the templates."""
    whole = template(archive, "--include-crds")
    # Without such a folder there is nothing to leave out: helm is not asked again.
    rest = template(archive) if has_folder_of_definitions(archive) else whole
    if whole is None or rest is None:
        return

    documents = [
        (raw["kind"], raw["metadata"]["name"], is_crd) for raw, is_crd in rendering.split(whole, archive.read_bytes())
    ]

    templates = sorted((raw["kind"], raw["metadata"]["name"]) for raw, _ in rendering.split(rest))
    assert sorted((kind, name) for kind, name, is_crd in documents if not is_crd) == templates
    assert {kind for kind, _, is_crd in documents if is_crd} <= {"CustomResourceDefinition"}


def test_the_archives_have_definitions_in_their_folders_crds():
    """The law above is not empty."""
    known = [path for path in ALL if path.name.startswith(("gpu-operator-v", "kube-prometheus-stack", "node-feature"))]
    rendered = [(path, template(path, "--include-crds") or b"") for path in known]
    crd_flags = [is_crd for path, text in rendered for _, is_crd in rendering.split(text, path.read_bytes())]
    assert sum(crd_flags) >= 20


@pytest.mark.parametrize("archive", ALL, ids=lambda path: path.stem)
def test_every_real_archive_is_accepted(archive):
    """The exception counts its versions as no semantic version does."""
    if re.search(r"\.0\d", archive.stem):
        with pytest.raises(archives.BadArchive, match="semantic version"):
            archives.judge(archive.read_bytes())
    else:
        assert archives.judge(archive.read_bytes()).name


# ── Presets ───────────────────────────────────────────────────────────────────────────────────────────────────────────
ANSWERS: dict[str, object] = {
    "k8sServiceHost": "api.example.com",
    "k8sServicePort": 6443,
    "autoDirectNodeRoutes": True,
    "ipv4NativeRoutingCIDR": "10.0.0.0/8",
    "ipam.operator.clusterPoolIPv4PodCIDRList": ["10.244.0.0/16"],
    "devices": ["bond0"],
    "config.outputs": "[OUTPUT]\n    Name stdout\n    Match *\n",
}
"""To what a person must decide, where the example of the catalog is not the value itself."""
COMPONENTS = [component for component in catalog.all() if list(ARCHIVES.glob(f"{component.chart.chart}-*"))]
IS_ALL = os.environ.get("SETPOINT_ALL_CHARTS") == "1"
DEEP = {
    *("cert-manager", "cilium", "gpu-operator", "kube-prometheus-stack", "kueue", "local-static-provisioner"),
    *("network-operator", "node-feature-discovery", "volcano"),
}
"""Tried in every way, as in the table of operations; the others are with SETPOINT_ALL_CHARTS=1: a rendering takes half
a second."""
IN_DEPTH = [component for component in COMPONENTS if IS_ALL or component.name in DEEP]


def archive_of(component: Component) -> bytes:
    """The version that the catalog names first, else the newest that is there."""
    paths = sorted(ARCHIVES.glob(f"{component.chart.chart}-*[0-9].*.tgz"))
    wanted = component.newest.removeprefix("v")
    return next((path for path in paths if path.stem.endswith(wanted)), paths[-1]).read_bytes()


def combinations(component: Component) -> list[tuple[str, ...]]:
    """Each preset alone and each allowed pair, with those that they work with only."""
    names = list(component.presets)
    out = {()}
    for some in [*((name,) for name in names), *itertools.combinations(names, 2)]:
        needed = [*some, *(other for name in some for other in component.presets[name].needs)]
        chosen = tuple(name for name in names if name in needed)
        if not excluded(component, chosen):
            out.add(chosen)
    return sorted(out)


def answered(component: Component, presets: tuple[str, ...]) -> dict[str, object]:
    given: dict[str, object] = {}
    for decision in component.open_decisions(presets, layered(component, presets=presets).values):
        answer = ANSWERS.get(decision.path) or yaml.safe_load(decision.example)
        *way, last = decision.path.split(".")
        place = given
        for step in way:
            place = place.setdefault(step, {})  # type: ignore[assignment]
        place[last] = answer
    return given


@pytest.mark.full
@pytest.mark.parametrize("component", IN_DEPTH, ids=lambda component: component.name)
def test_every_preset_and_every_allowed_pair_renders_with_the_real_chart(component):
    content = archive_of(component)
    chart = archives.judge(content)
    wrong = {}

    def rendered(presets: tuple[str, ...]) -> None:
        made = layered(component, presets=presets, cluster_values=answered(component, presets))
        notes = judge(made, chart.values, chart.schema, text=chart.values_text, subcharts=frozenset(chart.subcharts))
        if notes:
            wrong[presets] = str(notes)
            return
        job = client.HelmJob("one", "space", deadline=time.monotonic() + 300)
        try:
            text = client.program().template(job, content, made.values, kube_version="v1.35.0")
            list(rendering.split(text, content))
        except client.HelmError as error:
            wrong[presets] = str(error)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(rendered, combinations(component)))
    assert wrong == {}


@pytest.mark.parametrize(
    "component", [component for component in COMPONENTS if component.texts], ids=lambda component: component.name
)
def test_texts_that_presets_merge_into_are_the_charts_own(component):
    content = archive_of(component)
    chart = archives.judge(content)
    for path, text in component.texts.items():
        own = look_up(chart.values, path)
        if not own:  # Volcano's chart has its own in a file
            own = archives.files(content)["config/volcano-scheduler.conf"].decode()
        assert yaml.safe_load(text) == yaml.safe_load(own)


MADE_BY_OPERATORS = re.compile(r"nvidia-operator-validator|prometheus-.*-prometheus")


@pytest.mark.parametrize(
    ("component", "release"),
    [
        pytest.param(component, release, id=f"{component.name}-{release}")
        for component in COMPONENTS
        for release in ("own", "mine", "a-long-name-that-somebody-chose")
        if release == "mine" or component in IN_DEPTH
    ],
)
def test_readiness_asks_for_workloads_by_the_names_that_the_chart_gives_them(component, release):
    """Cover what plain helm installed, too: under another name, in another namespace."""
    name = component.name if release == "own" else release
    values = layered(component, cluster_values=answered(component, ())).values
    job = client.HelmJob(name, "elsewhere", deadline=time.monotonic() + 120)
    text = client.program().template(job, archive_of(component), values, kube_version="v1.35.0")
    raws = [raw for raw, _ in rendering.split(text, archive_of(component))]
    there = {(raw["kind"], raw["metadata"].get("namespace", "elsewhere"), raw["metadata"]["name"]) for raw in raws}

    tests = [
        test for test in component.tests(name, values, "elsewhere") if test.kind == "workloads" and not test.is_optional
    ]
    workloads = {
        (test.what["kind"], test.what["namespace"], workload)
        for test in tests
        for workload in test.what.get("names") or ()
        if not MADE_BY_OPERATORS.fullmatch(workload)
    }
    selected = [test.what for test in tests if "selector" in test.what]

    assert workloads or selected or not {raw["kind"] for raw in raws} & {"Deployment", "DaemonSet", "StatefulSet"}
    assert workloads <= there
    for what in selected:
        chosen = [raw for raw in raws if raw["kind"] == what["kind"] and _is_meant(raw, (), what["selector"])]
        assert {raw["metadata"].get("namespace", "elsewhere") for raw in chosen} == {what["namespace"]}
