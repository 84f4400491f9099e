"""A chart that may ask the cluster while it renders is never missed, however the call is hidden."""

from __future__ import annotations

import time

import pytest

from clusters.net.credentials import Credentials
from components.charts import lookups
from components.helm import client, rendering
from tests.components.packing import CHART, packed, tiny

LOOKUP = '{{ (lookup "v1" "ConfigMap" "a" "b") | toJson }}'


@pytest.mark.parametrize(
    ("files", "values", "asks"),
    [
        ({"templates/a.yaml": "a: {{ .Values.b }}\n"}, {}, False),
        ({"templates/a.yaml": "# looks up nothing\n", "README.md": f"`{LOOKUP}`"}, {}, False),
        ({"templates/a.yaml": LOOKUP}, {}, True),
        ({"templates/_a.tpl": f'{{{{ define "x" }}}}{LOOKUP}{{{{ end }}}}'}, {}, True),
        ({"templates/a.yaml": "{{ tpl .Values.b . }}"}, {"b": [{"c": LOOKUP}]}, True),
        ({"templates/a.yaml": "{{ tpl .Values.b . }}", "values.yaml": f"b: '{LOOKUP}'\n"}, {}, True),
        ({"templates/a.yaml": '{{ tpl (.Files.Get "files/b") . }}', "files/b": LOOKUP}, {}, True),
        ({"templates/a.yaml": '{{ tpl (.Files.Get "README.md") . }}', "README.md": LOOKUP}, {}, True),
        ({"charts/sub/Chart.yaml": CHART, "charts/sub/templates/a.yaml": LOOKUP}, {}, True),
        ({"charts/sub-1.0.0.tgz": tiny(a=LOOKUP)}, {}, True),
        ({"templates/a.yaml": '{{ "{{/*" }}' + LOOKUP + '{{ "*/}}" }}'}, {}, True),
    ],
)
def test_it_is_seen_wherever_it_hides(files, values, asks):
    assert lookups.asks_cluster(packed({"Chart.yaml": CHART} | files), values) == asks


def test_what_does_not_ask_is_rendered_without_credentials():
    """helm is then given no kubeconfig: what it was told is all that it knows."""
    credentials = []

    class Watched(client.Helm):
        def template(self, job, *arguments, **how):
            credentials.append(job.credentials)
            return super().template(job, *arguments, **how)

    program = client.program()
    watched = Watched(program.program, program.version)
    job = client.HelmJob(
        "one", "space", Credentials(server="https://127.0.0.1:1", token="t"), deadline=time.monotonic() + 60
    )
    rendering.render(watched, job, tiny(), {}, kube_version="v1.33.1", api_versions=(), is_upgrade=False)
    assert credentials
    assert set(credentials) == {None}


def test_definitions_are_the_manifests_of_a_folder_crds_and_not_the_files_of_a_subchart_of_that_name():
    text = "kind: CustomResourceDefinition\n"
    files = {"crds/a.yaml": text, "crds/README.md": "text", "charts/crds/values.yaml": "a: 1\n"}
    files |= {"charts/crds/Chart.yaml": "apiVersion: v2\nname: crds\nversion: 1.0.0\n", "charts/crds/crds/b.yml": text}
    files |= {"templates/crds/c.yaml": text, "charts/crds/templates/crds/d.yaml": text}

    manifests = lookups.definitions(packed({"Chart.yaml": CHART, **files}))

    assert {name for name, _ in manifests} == {"crds/a.yaml", "crds/b.yml"}
