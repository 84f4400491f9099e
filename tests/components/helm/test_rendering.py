"""The objects a chart would install, and a digest that changes with what matters and with nothing else."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusters.net.credentials import Credentials
from components.helm import client, rendering
from components.helm.client import HelmJob, HelmRefused
from components.helm.errors import translated
from tests.components.packing import CHART, CONFIG, packed, tiny

RANDOM = """\
apiVersion: v1
kind: Secret
metadata: {name: made, labels: {color: {{ .Values.color }}}}
stringData:
  password: {{ randAlphaNum 20 }}
  fixed: stays
{{- $ca := genCA "tiny" 1 }}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: hook}
webhooks:
- name: a.example.com
  clientConfig: {caBundle: {{ $ca.Cert | b64enc }}, url: "https://a"}
"""
CRD = "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\nmetadata: {name: things.example.com}\n"


def job() -> HelmJob:
    return HelmJob("one", "space", deadline=time.monotonic() + 60)


KUBE = {"kube_version": "v1.33.1", "api_versions": (), "is_upgrade": False}


def render(chart: bytes, values=None, **over):
    return rendering.render(client.program(), job(), chart, values or {}, **(KUBE | over))


def test_generated_fields_are_found_and_the_digest_does_not_know_them():
    first, second = render(tiny(a=RANDOM)), render(tiny(a=RANDOM))
    secret, hook = first.objects
    assert secret.generated == ("/stringData/password",)
    assert hook.generated == ("/webhooks/0/clientConfig/caBundle",)
    assert secret.masked()["stringData"] == {"password": "(generated)", "fixed": "stays"}
    assert secret.raw["stringData"]["password"] != second.objects[0].raw["stringData"]["password"]
    assert first.digest == second.digest
    assert first.masked == second.masked


def test_the_digest_knows_everything_else():
    base = render(tiny(a=RANDOM)).digest
    assert render(tiny(a=RANDOM), {"color": "blue"}).digest != base
    assert render(tiny(a=RANDOM.replace("stays", "moves"))).digest != base


def test_rendered_again_with_the_same_places_masked_it_is_the_same():
    planned = render(tiny(a=RANDOM))
    later = rendering.again(client.program(), job(), tiny(a=RANDOM), {}, **KUBE, masked=planned.masked)
    assert later.digest == planned.digest
    # What lookup finds after a first attempt takes the place of what was generated: still the same.
    fixed = RANDOM.replace("{{ randAlphaNum 20 }}", "found")
    assert rendering.again(client.program(), job(), tiny(a=fixed), {}, **KUBE, masked=planned.masked).digest == (
        planned.digest
    )
    # But nothing that was not generated when the plan was approved.
    other = RANDOM.replace("stays", "{{ randAlpha 5 }}")
    assert rendering.again(client.program(), job(), tiny(a=other), {}, **KUBE, masked=planned.masked).digest != (
        planned.digest
    )


def test_hooks_and_crds_stand_apart_and_lists_are_taken_apart():
    chart = packed(
        {
            "Chart.yaml": CHART,
            "crds/a.yaml": CRD,
            "charts/sub/Chart.yaml": CHART.replace("tiny", "sub"),
            "charts/sub/crds/b.yaml": CRD.replace("things", "others"),
            "templates/crds/c.yaml": CRD.replace("things", "templated"),
            "templates/job.yaml": "apiVersion: batch/v1\nkind: Job\n"
            "metadata: {name: j, annotations: {helm.sh/hook: pre-install}}\n",
            "templates/list.yaml": "apiVersion: v1\nkind: List\nitems:\n"
            "- {apiVersion: v1, kind: ConfigMap, metadata: {name: one}}\n"
            "- {apiVersion: v1, kind: ConfigMap, metadata: {name: two, namespace: other}}\n",
        }
    )
    rendered = render(chart)
    assert [definition.name for definition in rendered.crds] == ["things.example.com", "others.example.com"]
    assert [hook.name for hook in rendered.hooks] == ["j"]
    assert [(manifest.kind, manifest.namespace, manifest.name) for manifest in rendered.objects] == [
        ("CustomResourceDefinition", "", "templated.example.com"),
        ("ConfigMap", "", "one"),
        ("ConfigMap", "other", "two"),
    ]


BETWEEN = ["---\n", "--- # the next\n", "---\n# Source: tiny/templates/a.yaml\n", "---\r\n", "---\n---\n"]
BEFORE = [
    "",
    "---\n",
    "\n---\n",
    "# a license\n",
    "---\n# a license\n---\n",
    "# Source: operator/config/crd/bases\n---\n",
]


@given(
    st.lists(
        st.tuples(st.sampled_from(BEFORE), st.lists(st.sampled_from(BETWEEN), max_size=3), st.booleans()),
        min_size=1,
        max_size=4,
    )
)
def test_every_document_of_a_file_in_crds_is_known_as_one_however_they_are_separated(files):
    """helm copies them so: one header before each file, and the file below it as it is."""
    text, wanted, packing = "", [], {"Chart.yaml": CHART}
    for number, (before, between, is_sub) in enumerate(files):
        path, content = f"{'charts/sub/' if is_sub else ''}crds/{number}.yaml", before
        for index, separator in enumerate(["", *between]):
            wanted.append((f"n{number}-{index}.example.com", True))
            content += separator + CRD.replace("things.example.com", wanted[-1][0])
        packing[path] = content
        text += f"---\n# Source: tiny/{path}\n{content}\n"
    text += "---\n# Source: tiny/templates/a.yaml\n" + CRD.replace("things", "templated")
    # helm takes templates apart itself, and gives each document the file's name; a comment below it is the chart's.
    text += "---\n# Source: tiny/templates/a.yaml\n# Source: tiny/crds/a.yaml\n" + CRD.replace("things", "second")
    text += "---\n# Source: tiny/crds/0.yaml\n" + CRD.replace("things", "passing")
    wanted += [(f"{name}.example.com", False) for name in ("templated", "second", "passing")]

    documents = rendering.split(text.encode(), packed(packing))

    assert [(raw["metadata"]["name"], is_crd) for raw, is_crd in documents] == wanted


def test_definitions_that_begin_as_real_ones_do_are_definitions_through_helm_itself():
    chart = packed(
        {
            "Chart.yaml": CHART,
            "crds/a.yaml": f"---\n{CRD}---\n{CRD.replace('things', 'others')}",
            "crds/b.yaml": f"# Source: operator/config/crd\n---\n{CRD.replace('things', 'more')}",
            "templates/a.yaml": f"---\n{CRD.replace('things', 'templated')}---\n{CONFIG}",
        }
    )
    rendered = render(chart, {"color": "blue"})
    assert [definition.name for definition in rendered.crds] == [
        "things.example.com",
        "others.example.com",
        "more.example.com",
    ]
    assert {manifest.kind for manifest in rendered.objects} == {"CustomResourceDefinition", "ConfigMap"}


def test_a_separator_inside_a_text_separates_nothing():
    inner = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  b: |\n    x\n    ---\n    y\n"
    assert [dict(manifest.raw)["data"] for manifest in render(tiny(a=inner)).objects] == [{"b": "x\n---\ny\n"}]


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ("{{ if eq (randInt 0 1000000000 | toString) `x` }}{{ end }}a: 1", "no Kubernetes object"),
        ("kind: 5\napiVersion: v1", "no Kubernetes object"),
    ],
)
def test_what_is_no_object_is_refused(template, words):
    with pytest.raises(HelmRefused, match=words):
        render(tiny(a=template))


def test_a_chart_whose_objects_depend_on_chance_is_refused():
    template = "apiVersion: v1\nkind: {{ printf `K%s` (randAlpha 10) }}\nmetadata: {name: a}\n"
    with pytest.raises(HelmRefused, match="different objects each time"):
        render(tiny(a=template))


def test_a_chart_that_names_its_objects_by_chance_is_refused():
    template = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ printf `a%s` (randAlpha 10 | lower) }}}\n"
    with pytest.raises(HelmRefused, match="by chance"):
        render(tiny(a=template))


def test_too_many_objects_are_refused(monkeypatch):
    monkeypatch.setattr(rendering, "MAX_OBJECTS", 3)
    many = "{{ range until 4 }}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a{{ . }}}\n{{ end }}"
    with pytest.raises(HelmRefused, match="more than 3 objects"):
        render(tiny(a=many))


# ── A chart's own kinds ───────────────────────────────────────────────────────────────────────────────────────────────
OWN = """\
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  names: {kind: Thing, plural: things}
  versions: [{name: v1, served: true}, {name: v1alpha1, served: false}]
"""
ASKS = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: a}
data:
  served: {{ .Capabilities.APIVersions.Has "example.com/v1/Thing" | quote }}
  old: {{ .Capabilities.APIVersions.Has "example.com/v1alpha1" | quote }}
"""


def test_a_chart_finds_the_kinds_of_its_own_crds_served():
    """Those that are not there are created before helm renders, with an install and with an upgrade."""
    chart = packed({"Chart.yaml": CHART, "crds/a.yaml": OWN, "templates/a.yaml": ASKS})
    for is_upgrade in (False, True):
        planned = render(chart, is_upgrade=is_upgrade)
        assert planned.objects[0].raw["data"] == {"served": "true", "old": "false"}
        how = KUBE | {"is_upgrade": is_upgrade}
        later = rendering.again(client.program(), job(), chart, {}, **how, masked=planned.masked)
        assert later.digest == planned.digest
    # Once they are there, nothing is other: a try that was ended half way can be gone on with.
    again = render(chart, api_versions=("example.com/v1", "example.com/v1/Thing"))
    assert again.digest == render(chart).digest
    # What the values switch off is not created, and one that is there is not changed: it serves what it did.
    needs = f"{CHART}dependencies: [{{name: sub, version: 1.0.0, condition: sub.enabled}}]\n"
    sub = {"charts/sub/Chart.yaml": CHART.replace("tiny", "sub"), "charts/sub/crds/a.yaml": OWN}
    off = packed({"Chart.yaml": needs, "templates/a.yaml": ASKS, **sub})
    assert render(off, {"sub": {"enabled": False}}).objects[0].raw["data"]["served"] == "false"
    assert render(off).objects[0].raw["data"]["served"] == "true"
    older = render(chart, api_versions=("example.com/v1alpha1", "example.com/v1alpha1/Thing"))
    assert older.objects[0].raw["data"] == {"served": "false", "old": "true"}


def test_a_chart_is_not_rendered_once_more_to_learn_of_kinds_that_are_all_there():
    """helm takes a second for a chart with many definitions, and a worker waits for it before each install."""
    runs = []

    class Counted(client.Helm):
        def template(self, *arguments, **how):
            runs.append(how["api_versions"])
            return super().template(*arguments, **how)

    program = Counted(client.program().program, client.program().version)
    chart = packed({"Chart.yaml": CHART, "crds/a.yaml": OWN, "templates/a.yaml": RANDOM})
    known = KUBE | {"api_versions": ("example.com/v1", "example.com/v1/Thing")}
    planned = rendering.render(program, job(), chart, {}, **known)
    assert len(runs) == 2, "twice, or what is generated would not be found"
    assert planned.objects[0].generated == ("/stringData/password",)
    runs.clear()
    assert rendering.again(program, job(), chart, {}, **known, masked=planned.masked).digest == planned.digest
    assert len(runs) == 1
    runs.clear()
    rendering.again(program, job(), chart, {}, **KUBE, masked=planned.masked)
    assert [len(kinds) for kinds in runs] == [0, 2], "its own kinds are named to what counts"


class CannotAsk(client.Helm):
    """A helm v4 beside a cluster that does not know a kind: it renders without the cluster only."""

    def template(self, job, *arguments, **how):
        if job.credentials:
            raise client.UnknownKind('no matches for kind "Thing" in version "example.com/v1"')
        return super().template(job, *arguments, **how)


def test_a_helm_that_cannot_ask_before_a_kind_is_there_renders_without_and_says_so():
    program = CannotAsk(client.program().program, "v4.3.1")
    asking = HelmJob(
        "one", "space", Credentials(server="https://127.0.0.1:1", token="t"), deadline=time.monotonic() + 60
    )
    files = {"Chart.yaml": CHART, "crds/a.yaml": OWN, "templates/a.yaml": ASKS}
    lookup = files | {"templates/b.yaml": '{{ if lookup "v1" "Secret" "a" "b" }}{{ fail "x" }}{{ end }}'}

    assert not rendering.render(program, asking, packed(files), {}, **KUBE).is_blind
    assert rendering.render(program, asking, packed(lookup), {}, **KUBE).is_blind
    assert rendering.render(program, asking, packed(lookup), {}, **KUBE | {"is_upgrade": True}).is_blind
    older = {"api_versions": ["example.com/v1alpha1", "example.com/v1alpha1/Thing"]}
    with pytest.raises(client.UnknownKind):  # helm would refuse it, too: what is there is not changed
        rendering.render(program, asking, packed(lookup), {}, **KUBE | older)


class MayNotRead(client.Helm):
    """A helm v4 whose identity may not read an object of the chart."""

    def template(self, job, *arguments, **how):
        if job.credentials:
            raise client.UnreadableObject("things.example.com is forbidden")
        return super().template(job, *arguments, **how)


@pytest.mark.parametrize("is_upgrade", [False, True])
def test_what_may_not_be_read_is_rendered_without_the_cluster_and_again_by_whoever_may(is_upgrade):
    """The planner may not read what the installer may: both render the same, for the plan is judged by its digest."""
    asking = HelmJob(
        "one", "space", Credentials(server="https://127.0.0.1:1", token="t"), deadline=time.monotonic() + 60
    )
    lookup = '{{ if lookup "v1" "Secret" "a" "b" }}{{ fail "x" }}{{ end }}'
    chart = packed({"Chart.yaml": CHART, "templates/a.yaml": ASKS, "templates/b.yaml": lookup})
    how = KUBE | {"is_upgrade": is_upgrade}
    program = client.program()

    planned = rendering.render(MayNotRead(program.program, "v4.3.1"), asking, chart, {}, **how)

    assert planned.is_blind
    later = rendering.again(program, asking, chart, {}, **how, masked=planned.masked, is_blind=True)
    assert (later.digest, later.is_blind) == (planned.digest, True)


def test_words_of_helm_about_an_object_that_may_not_be_read_are_known():
    output = (
        'Error: could not get information about the resource TracingPolicy "a" in namespace "": '
        'tracingpolicies.cilium.io "a" is forbidden: User "system:serviceaccount:setpoint-system:setpoint-controller" '
        'cannot get resource "tracingpolicies" in API group "cilium.io" at the cluster scope\n'
    )
    assert isinstance(translated(output, 1), client.UnreadableObject)
    other = translated('Error: secrets "a" is forbidden: User "b" cannot get it', 1)
    assert not isinstance(other, client.UnreadableObject)


@pytest.mark.parametrize(
    "words",
    [
        "could not get information about the resource Secret a: secrets is forbidden: no",
        'no matches for kind "Thing" in version "example.com/v1"',
    ],
)
def test_a_chart_cannot_say_helms_words_to_be_rendered_without_the_cluster(words):
    """An install is compared with its plan less strictly then."""
    with pytest.raises(HelmRefused) as caught:
        client.program().template(job(), tiny(a=f"{{{{ fail `{words}` }}}}"), {}, kube_version="v1.33.1")
    assert words in str(caught.value)
    assert not isinstance(caught.value, client.UnreadableObject | client.UnknownKind)


def test_words_of_helm_about_a_kind_that_is_not_there_are_known():
    output = (
        "Error: unable to build kubernetes objects from release manifest: resource mapping not found for name: "
        '"a" namespace: "" from "": no matches for kind "Thing" in version "example.com/v1"\n'
        "ensure CRDs are installed first\n"
    )
    assert isinstance(translated(output, 1), client.UnknownKind)
