"""The release that helm installed is compared with the approved one: charts that render otherwise when it counts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from components.catalog import catalog
from components.charts import archives
from components.helm import recorded
from components.helm.errors import HelmRefused
from components.helm.releases import Release
from components.helm.rendering import Manifest, Rendered
from simfleet.apiserver.callers import person
from tests.components.packing import entry, packed
from tests.components.release.test_work import World, world

__all__ = ["world"]

SETTINGS = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: found}
data: {there: %s}
"""
HIDDEN = """{{ tpl (printf "{{ (look%s \\"v1\\" \\"Namespace\\" \\"\\" \\"asked-for\\") | empty | not }}" "up") . }}"""
"""The archive does not contain the word."""
MORE = """
{{- if eq (INNER) "true" }}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: another}
{{- end }}
""".replace("INNER", HIDDEN.removeprefix("{{ ").removesuffix(" }}"))
HOOK = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: before, annotations: {helm.sh/hook: pre-install}}
data: {there: %s}
"""


@pytest.fixture
def extended(tmp_path) -> Iterator[None]:
    folder = tmp_path / "entries"
    folder.mkdir()
    (folder / "sly.yaml").write_text(entry("sly", "1.0.0", workload="Deployment/any", namespace="sly"))
    with catalog.extended(folder):
        yield


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("template", "named"),
    [
        (SETTINGS % f"'{HIDDEN}'", "ConfigMap found"),
        (SETTINGS % "'1'" + MORE, "ConfigMap another"),
        (SETTINGS % "'1'" + "---\n" + HOOK % f"'{HIDDEN}'", "ConfigMap before"),
    ],
    ids=["a value", "an object", "a hook"],
)
def test_a_chart_that_hides_what_it_looks_up_is_not_installed_as_approved(world: World, extended, template, named):
    files = {"Chart.yaml": "apiVersion: v2\nname: sly\nversion: 1.0.0\n", "templates/a.yaml": template}
    archives.store(packed(files, "sly"), origin="uploaded")
    with world.site.sim.lock:
        world.site.sim.api.create(person("anna"), "namespaces", {"metadata": {"name": "asked-for"}})
    prepared = world.prepare("sly", "1.0.0")
    assert [note for note in prepared.notes if note.severity == "block"] == []

    with pytest.raises(HelmRefused, match=rf"other objects than what was approved: {named}"):
        world.carry_out(prepared)

    assert world.look(prepared).is_ready is False
    with pytest.raises(HelmRefused, match="other objects than what was approved"):
        world.carry_out(prepared)
    world.carry_out(prepared, "revert")
    assert world.site.helm("list", "--all-namespaces", "--all", "--short") == ""


SCRIPT = """\
apiVersion: v1
kind: ConfigMap
metadata: {name: script, annotations: {helm.sh/hook: pre-install}}
data:
  run.sh: |
    echo a
"""


@pytest.mark.django_db
def test_a_hook_that_ends_with_a_text_of_several_lines_is_as_approved(world: World, extended):
    """helm records a hook without the line break at its end, which `helm template` prints."""
    files = {"Chart.yaml": "apiVersion: v2\nname: sly\nversion: 1.0.0\n"}
    second = SETTINGS % "'1'" + "---\n" + SCRIPT.replace("script", "b")
    files |= {"templates/a.yaml": SCRIPT, "templates/b.yaml": second}
    archives.store(packed(files, "sly"), origin="uploaded")

    prepared = world.prepare("sly", "1.0.0")
    world.carry_out(prepared)

    assert "sly" in world.site.helm("list", "--all-namespaces", "--short")


OBJECT = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": "1"}}


def rendered(*objects: dict[str, Any], generated: tuple[str, ...] = ()) -> Rendered:
    made = tuple(Manifest(raw, generated) for raw in objects)
    return Rendered(made, (), (), (), "")


def recorded_as(*objects: dict[str, Any], revision: int = 1) -> Release:
    text = "\n---\n".join(json.dumps(raw) for raw in objects)
    about = {"name": "a", "namespace": "a", "status": "deployed", "chart": "a", "chart_version": "1", "app_version": ""}
    return Release(
        **about, revision=revision, values={}, manifest=text, updated="", description="", is_server_side=False
    )


def with_data(**data: str) -> dict[str, Any]:
    return {**OBJECT, "data": data}


def annotated(value: str) -> dict[str, Any]:
    return {**OBJECT, "metadata": {"name": "a", "annotations": {"rollme": value}}}


OTHER = {**OBJECT, "metadata": {"name": "b"}}


@pytest.mark.parametrize(
    ("approved", "record", "differing"),
    [
        (rendered(OBJECT), recorded_as(OBJECT), []),
        (rendered(OBJECT), recorded_as(with_data(x="2"), revision=2), ["ConfigMap a"]),
        (rendered(OBJECT, OTHER), recorded_as(OBJECT), ["ConfigMap b"]),
        (rendered(OBJECT), recorded_as(OBJECT, OTHER), ["ConfigMap b"]),
        (rendered(OBJECT), recorded_as(OBJECT, OBJECT), ["ConfigMap a"]),
        (rendered(OBJECT, generated=("/data/x",)), recorded_as(with_data(x="7")), []),
        (rendered(OBJECT, generated=("/data/x",)), recorded_as(with_data(x="7", y="8")), ["ConfigMap a"]),
        (rendered(annotated("1")), recorded_as(annotated("3"), revision=3), []),
        (rendered(annotated("1")), recorded_as(annotated("4"), revision=3), ["ConfigMap a"]),
    ],
)
def test_only_what_is_made_anew_and_a_revisions_own_number_may_differ(approved, record, differing):
    assert recorded.others(approved, record) == differing
