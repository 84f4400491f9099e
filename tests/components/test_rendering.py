"""What a chart would install, and a digest that changes with what matters and with nothing else."""

from __future__ import annotations

import time

import pytest

from components import helm, rendering
from components.helm import HelmRefused, Job
from tests.components.charts import CHART, packed, tiny

RANDOM = """\
apiVersion: v1
kind: Secret
metadata: {name: made, labels: {colour: {{ .Values.colour }}}}
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


def job() -> Job:
    return Job("one", "space", deadline=time.monotonic() + 60)


KUBE = {"kube_version": "v1.33.1", "api_versions": (), "is_upgrade": False}


def render(chart: bytes, values=None, **over):
    return rendering.render(helm.program(), job(), chart, values or {}, **(KUBE | over))


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
    assert render(tiny(a=RANDOM), {"colour": "blue"}).digest != base
    assert render(tiny(a=RANDOM.replace("stays", "moves"))).digest != base


def test_rendered_again_with_the_same_places_masked_it_is_the_same():
    planned = render(tiny(a=RANDOM))
    later = rendering.again(helm.program(), job(), tiny(a=RANDOM), {}, **KUBE, masked=planned.masked)
    assert later.digest == planned.digest
    # What lookup finds after a first attempt takes the place of what was generated: still the same.
    fixed = RANDOM.replace("{{ randAlphaNum 20 }}", "found")
    assert rendering.again(helm.program(), job(), tiny(a=fixed), {}, **KUBE, masked=planned.masked).digest == (
        planned.digest
    )
    # But nothing that was not generated when the plan was approved.
    other = RANDOM.replace("stays", "{{ randAlpha 5 }}")
    assert rendering.again(helm.program(), job(), tiny(a=other), {}, **KUBE, masked=planned.masked).digest != (
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
    found = render(chart)
    assert [one.name for one in found.crds] == ["things.example.com", "others.example.com"]
    assert [one.name for one in found.hooks] == ["j"]
    assert [(one.kind, one.namespace, one.name) for one in found.objects] == [
        ("CustomResourceDefinition", "", "templated.example.com"),
        ("ConfigMap", "", "one"),
        ("ConfigMap", "other", "two"),
    ]


def test_a_separator_inside_a_text_separates_nothing():
    inner = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata:\n  b: |\n    x\n    ---\n    y\n"
    assert [dict(one.raw)["data"] for one in render(tiny(a=inner)).objects] == [{"b": "x\n---\ny\n"}]


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
    one = "apiVersion: v1\nkind: {{ printf `K%s` (randAlpha 10) }}\nmetadata: {name: a}\n"
    with pytest.raises(HelmRefused, match="different objects each time"):
        render(tiny(a=one))


def test_a_chart_that_names_its_objects_by_chance_is_refused():
    one = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: {{ printf `a%s` (randAlpha 10 | lower) }}}\n"
    with pytest.raises(HelmRefused, match="by chance"):
        render(tiny(a=one))


def test_too_many_objects_are_refused(monkeypatch):
    monkeypatch.setattr(rendering, "MAX_OBJECTS", 3)
    many = "{{ range until 4 }}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a{{ . }}}\n{{ end }}"
    with pytest.raises(HelmRefused, match="more than 3 objects"):
        render(tiny(a=many))
