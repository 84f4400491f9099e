"""Drafts of entries from charts: what a chart renders to, held against small charts and against the shipped catalog."""

from __future__ import annotations

import pytest

from common.errors import Invalid
from components.catalog import catalog, loader
from components.catalog.entry import POD_SECURITY, Component
from components.charts import archives
from components.importer import chart_draft, pod_level
from components.models import SiteEntry
from tests.components.charts.test_real_charts import CHARTS
from tests.components.packing import packed
from tests.factories import TokenClient, UserFactory
from tests.profiles.web.test_pages import browser

ABOUT = "apiVersion: v2\nname: my-tool\nversion: 1.2.3\nkubeVersion: '>=1.29-0'\ndescription: It  does\n  a thing.\n"
WORKLOADS = """\
apiVersion: apps/v1
kind: Deployment
metadata: {name: "{{ .Release.Name }}-controller"}
spec: {template: {spec: {containers: [{name: a, image: a}]}}}
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: fixed, namespace: elsewhere}
spec: {template: {spec: {containers: [{name: a, image: a}]}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: off}
spec: {replicas: 0, template: {spec: {containers: [{name: a, image: a}]}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: reader}
rules: [{apiGroups: [""], resources: [secrets], verbs: [get]}]
---
apiVersion: batch/v1
kind: Job
metadata: {name: prepare, annotations: {helm.sh/hook: pre-install}}
spec: {template: {spec: {containers: [{name: a, image: a}]}}}
"""
DEFINITION = """\
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: NAME.example.org}
spec: {group: example.org, scope: Cluster, names: {kind: NAME, plural: NAME}, versions: []}
"""


def chart(values: str = "{}\n", **files: str) -> bytes:
    own = {path.replace("__", "/").replace("_yaml", ".yaml"): text for path, text in files.items()}
    return packed({"Chart.yaml": ABOUT, "values.yaml": values, **own}, folder="my-tool")


def drafted(content: bytes, url: str = "") -> tuple[Component, tuple[str, ...]]:
    draft = chart_draft.draft(content, url=url)
    return loader.parse(draft.text, file="draft"), draft.notes


def test_a_draft_has_what_the_chart_renders_to():
    made, notes = drafted(
        chart(templates__a_yaml=WORKLOADS, crds__b_yaml=DEFINITION.replace("NAME", "stays")),
        url="https://charts.example.org",
    )
    assert (made.name, made.newest, made.summary) == ("my-tool", "1.2.3", "It does a thing.")
    assert made.versions[0].kubernetes == "1.29 or newer"
    assert (made.crds, made.crds_stay) == (("stays.example.org",), True)
    workloads = [test.what for test in made.readiness if test.kind == "workloads"]
    assert workloads == [
        {"namespace": "{namespace}", "kind": "Deployment", "names": ["{release}-controller"]},
        {"namespace": "elsewhere", "kind": "StatefulSet", "names": ["fixed"]},
    ]
    running = " ".join(hazard.text for hazard in made.running_hazards)
    assert "ClusterRole, CustomResourceDefinition" in running
    assert "read every Secret, by ClusterRole reader" in running
    assert "Job prepare (pre-install)" in running
    assert made.effects.unknown == "drain", "a draft claims no mild effect"
    assert any("states no effects" in note for note in notes)
    assert not any("unpublished" in note or "No repository" in note for note in notes)


def test_a_definition_among_templates_goes_with_the_release():
    made, notes = drafted(chart(templates__a_yaml=DEFINITION.replace("NAME", "goes")))
    assert (made.crds, made.crds_stay) == (("goes.example.org",), False)
    assert "go with the release" in made.removal_hazards[0].text
    assert any("No repository was named" in note for note in notes)
    kept = DEFINITION.replace("{name: NAME.example.org}", "{name: a.b, annotations: {helm.sh/resource-policy: keep}}")
    assert drafted(chart(templates__a_yaml=kept))[0].crds_stay


@pytest.mark.parametrize(
    "use",
    [
        '{{ required "my.name is required" .Values.my.name }}',
        '{{ if not .Values.my.name }}{{ fail "Set my.name!" }}{{ end }}x',
    ],
)
def test_a_value_that_the_chart_demands_is_a_decision(use):
    named = WORKLOADS.replace("{{ .Release.Name }}-controller", "x").replace('name: "x"', f"name: '{use}'")
    made, notes = drafted(chart("my: {name: ''}\n", templates__a_yaml=named.replace("'{{", "{{").replace("}}'", "}}")))
    (decision,) = made.decisions
    assert (decision.path, decision.is_required) == ("my.name", True)
    assert "my.name" in decision.question
    assert any("does not render without my.name" in note for note in notes)


def test_what_cannot_be_drafted_is_refused_in_the_charts_own_words():
    with pytest.raises(Invalid, match="neither a workload nor a definition"):
        drafted(chart(templates__a_yaml="apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"))
    with pytest.raises(Invalid, match="ask the moon"):
        drafted(chart(templates__a_yaml='{{ fail "ask the moon" }}'))


def test_what_a_chart_says_of_itself_cannot_break_out_of_the_draft():
    evil = ABOUT.replace("It  does\n  a thing.", '"x\\nname: volcano\\npod_security: restricted # {{ }}"')
    made, _ = drafted(packed({"Chart.yaml": evil, "templates/a.yaml": WORKLOADS}, folder="my-tool"))
    assert made.name == "my-tool"
    assert made.summary == "x name: volcano pod_security: restricted # {{ }}"


def test_a_draft_is_offered_on_the_page_and_over_rest_and_stores_nothing(db):
    admin = UserFactory(roles=["admin"])
    archive = archives.store(chart(templates__a_yaml=WORKLOADS), origin="uploaded")
    given = {"archive": archive.pk, "url": "https://charts.example.org"}
    made = TokenClient(admin).post("/api/v1/site-entries/actions/draft", given)
    assert (made.status_code, "{release}-controller" in made.json()["text"]) == (200, True)
    page = browser(admin).post("/components/site/draft/", given).content.decode()
    assert "{release}-controller" in page
    assert "states no effects" in page
    assert not SiteEntry.objects.exists()
    assert archive.pk in browser(admin).get("/components/site/").content.decode()

    assert TokenClient(admin).post("/api/v1/site-entries", {"text": made.json()["text"]}).status_code == 201
    assert catalog.get("my-tool").is_untested
    for wrong in ({"archive": "0" * 64}, given | {"url": "ftp://x"}):
        assert browser(admin).post("/components/site/draft/", wrong).status_code == 422
        assert TokenClient(admin).post("/api/v1/site-entries/actions/draft", wrong).status_code == 422


def test_a_refused_draft_loses_nothing_that_was_chosen(db):
    admin = UserFactory(roles=["admin"])
    archives.store(chart(templates__a_yaml=DEFINITION.replace("NAME", "one")), origin="uploaded")
    chosen = archives.store(chart(templates__a_yaml=WORKLOADS), origin="uploaded")
    answer = browser(admin).post("/components/site/draft/", {"archive": chosen.pk, "url": "ftp://x?a=<b>"})
    assert answer.status_code == 422
    page = answer.content.decode()
    assert f'<option value="{chosen.pk}" selected>' in page
    assert page.count(" selected>") == 1
    assert 'value="ftp://x?a=&lt;b&gt;"' in page


SAFE = {
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


@pytest.mark.parametrize(
    ("spec", "wanted"),
    [
        ({"containers": [{"securityContext": SAFE}]}, "restricted"),
        ({"containers": [{"securityContext": {**SAFE, "runAsNonRoot": None}}]}, "baseline"),
        ({"containers": [{"securityContext": {**SAFE, "allowPrivilegeEscalation": None}}]}, "baseline"),
        ({"containers": [{"securityContext": SAFE}, {}]}, "baseline"),
        ({"containers": [{"securityContext": SAFE}], "initContainers": [{"securityContext": {"privileged": True}}]},
         "privileged"),
        ({"containers": [{"securityContext": SAFE}], "hostNetwork": True}, "privileged"),
        ({"containers": [{"securityContext": SAFE}], "volumes": [{"name": "a", "hostPath": {}}]}, "privileged"),
        ({"containers": [{"securityContext": SAFE}], "volumes": [{"name": "a", "nfs": {}}]}, "baseline"),
        ({"containers": [{"securityContext": {"capabilities": {"add": ["SYS_ADMIN"]}}}]}, "privileged"),
        ({"containers": [{"ports": [{"hostPort": 80}]}]}, "privileged"),
    ],
)  # fmt: skip
def test_the_level_of_pods_is_that_of_kubernetes_own_standards(spec, wanted):
    pod = {"kind": "DaemonSet", "spec": {"template": {"spec": spec}}}
    job = {"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}}
    assert pod_level.level([pod]) == pod_level.level([job]) == wanted


# ── Held against the catalog that comes with Setpoint ─────────────────────────────────────────────────────────────────
ALIKE = (
    "argo-cd", "keda", "metrics-server", "node-feature-discovery", "gpu-operator", "kueue", "lws", "volcano", "velero",
    "nvidia-device-plugin",
)  # fmt: skip


@pytest.mark.skipif(not CHARTS.is_dir(), reason=f"needs charts: there are none in {CHARTS}")
@pytest.mark.parametrize("name", ALIKE)
def test_a_draft_of_a_real_chart_agrees_with_the_entry_that_people_wrote(name):
    """Definitions, whether they stay, workloads by the release's name, and a level that is no stricter than needed."""
    shipped = catalog.get(name)
    version = shipped.newest.removeprefix("v")
    chart_name = shipped.chart.chart.rpartition("/")[2]
    paths = [CHARTS / "archives" / f"{chart_name}-{prefix}{version}.tgz" for prefix in ("", "v")]
    path = next((path for path in paths if path.exists()), None)
    if path is None:
        pytest.skip(f"needs charts: {chart_name} {version}")
    made, _ = drafted(path.read_bytes())

    assert {*shipped.crds} <= {*made.crds}
    assert shipped.crds_stay == made.crds_stay or not shipped.crds
    assert workloads(shipped, made.name) <= workloads(made, made.name)
    assert workloads(shipped, "other") <= workloads(made, "other"), "placeholders, not names that happen to be right"
    assert POD_SECURITY.index(shipped.pod_security) <= POD_SECURITY.index(made.pod_security)


def workloads(component: Component, release: str) -> set[tuple[str, str]]:
    tests = [test for test in component.readiness if test.kind == "workloads" and "names" in test.what]
    filled = [t.of_release(component.place(release)) for t in tests if not t.unless and not t.is_optional]
    return {(str(test.what.get("kind")), name) for test in filled for name in test.what["names"]}
