"""Components as fields of the form: only changed ones are written again, and comments stay where they are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from common import yaml
from common.errors import Invalid
from components.catalog import catalog
from profiles.editor import component_rows
from profiles.editor.component_rows import ComponentFields
from profiles.models import Profile
from tests.profiles.services.test_profiles import made
from tests.profiles.web.test_pages import at, browser

SOURCE = """\
# ours
settings:
  vm.swappiness: 10  # low
components:
  # the network
  cilium:
    version: 1.20.0
    presets: [bbr, metrics]
    why: fast
    values:
      # measured
      MTU: 9000   # all switches

      devices:
        - bond0
  volcano: {}
# who may
policies: []
"""


def test_fields_are_what_the_text_says_with_the_comments_of_its_values():
    cilium, volcano = component_rows.read(SOURCE)
    assert cilium == ComponentFields(
        "cilium", "1.20.0", "bbr, metrics", "# measured\nMTU: 9000   # all switches\n\ndevices:\n  - bond0\n", "fast"
    )
    assert volcano == ComponentFields("volcano")
    assert component_rows.write(SOURCE, [cilium, volcano]) == SOURCE


def test_a_change_touches_its_own_entry_only():
    cilium, volcano = component_rows.read(SOURCE)
    written = component_rows.write(SOURCE, [replace(cilium, values=cilium.values.replace("9000 ", "8900 ")), volcano])
    assert written == SOURCE.replace("9000 ", "8900 ").replace(
        "    version: 1.20.0\n    presets: [bbr, metrics]\n", "    version: '1.20.0'\n    presets: [bbr, metrics]\n"
    )
    written = component_rows.write(SOURCE, [cilium, ComponentFields("volcano", presets="none")])
    assert written == SOURCE.replace("  volcano: {}\n", "  volcano:\n    presets: []\n")
    assert component_rows.read(written)[1].presets == "none"


def test_components_come_and_go_and_the_part_with_the_last():
    cilium, volcano = component_rows.read(SOURCE)
    kueue = ComponentFields("kueue", values="a: {b: 1}")
    assert component_rows.write(SOURCE, [cilium, volcano, kueue]) == SOURCE.replace(
        "  volcano: {}\n", "  volcano: {}\n  kueue:\n    values:\n      a: {b: 1}\n"
    )
    assert "cilium" not in component_rows.write(SOURCE, [volcano])
    assert yaml.load(component_rows.write(SOURCE, [])).data == {"settings": {"vm.swappiness": 10}, "policies": []}
    assert component_rows.write("", [kueue]) == "components:\n  kueue:\n    values:\n      a: {b: 1}\n"
    assert component_rows.write("labels: {a: b}", [ComponentFields("x")]) == "labels: {a: b}\ncomponents:\n  x: {}\n"


@pytest.mark.parametrize(
    "source",
    [
        "components: {a: {values: {x: 1}}}\nlabels: {c: d}\n",
        "components:\n  a: {version: 1.2.3, values: {x: 1}}\n",
        "components:\n  a:\n    values: {x: 1}\n",
        "components:\n    a:\n        values:\n            x: |\n              two\n              lines\n",
        "components:\n  a:\n",
        "components:\n",
    ],
)
def test_whatever_the_layout_what_is_asked_for_is_what_is_written(source):
    before = yaml.load(source).data
    wanted = [ComponentFields("a", "9.9.9", "p", "x: 2\ny: [1, 'no']\n", "because: of #1"), ComponentFields("b")]
    after = yaml.load(component_rows.write(source, wanted)).data
    entry = {"version": "9.9.9", "presets": ["p"], "values": {"x": 2, "y": [1, "no"]}, "why": "because: of #1"}
    assert after == before | {"components": {"a": entry, "b": {}}}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        (ComponentFields("a", values="x: &a 1"), "components.a.values"),
        (ComponentFields("a", values="[1"), "components.a.values"),
        (ComponentFields("a", values="- x"), "components.a.values"),
        (ComponentFields("a", values="x: 1\n  y: 2"), "components.a.values"),
        (ComponentFields(""), "components.?"),
    ],
)
def test_what_cannot_be_written_is_refused_by_name(fields, field):
    with pytest.raises(Invalid) as refused:
        component_rows.write(SOURCE, [fields])
    assert list(refused.value.fields) == [field]


def test_values_cannot_write_into_the_text_around_them():
    for values in ("a: |\n  x\nb: 1\n", "a: 1\n# settings:\n", "a: 'x\n\n  y'\n", 'a: "x: {}"\n'):
        written = component_rows.write("labels: {k: v}\n", [ComponentFields("a", values=values)])
        assert yaml.load(written).data == {
            "labels": {"k": "v"},
            "components": {"a": {"values": yaml.load(values).data}},
        }


# ── The page ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def sent(page, **over):
    """Return the fields that the form of this page sends."""
    components = page.context["components"]
    fields = {
        "view": "form",
        "version": str(page.context["form"].initial.get("version", "")),
        "source": page.context["source"],
        "with_components": "1",
        "component": [row.fields.name for row in components],
        "component_version": [row.fields.version for row in components],
        "component_presets": [row.fields.presets for row in components],
        "component_values": [row.fields.values for row in components],
        "component_why": [row.fields.why for row in components],
        "component_remove": ["true" if row.fields.is_gone else "" for row in components],
        "key": ["vm.swappiness"],
        "operator": ["="],
        "value": ["10"],
        "why": [""],
    }
    return fields | over


def test_the_form_adds_changes_and_saves_components_and_keeps_comments(olga):
    client = browser(olga)
    made(olga, "net", SOURCE.replace("policies: []\n", ""))
    page = client.get(at("profile_edit", "net"))
    assert [row.fields.name for row in page.context["components"]] == ["cilium", "volcano"]
    offered = [component.name for component in page.context["choices"]]
    assert offered == [component.name for component in catalog.all() if component.name not in ("cilium", "volcano")]

    page = client.post(at("profile_edit", "net"), sent(page, intent="want:kueue"))
    assert [row.fields.name for row in page.context["components"]] == ["cilium", "volcano", "kueue"]
    changed = sent(page, component_presets=["bbr", "", "nonsense"], version="1")
    page = client.post(at("profile_edit", "net"), changed | {"intent": "check", "source": page.context["source"]})
    row = page.context["components"][2]
    assert any("has no preset 'nonsense'" in text for text in row.problems)
    assert (
        client.post(at("profile_edit", "net"), sent(page, component_presets=["bbr", "", ""], version="1")).status_code
        == 302
    )
    draft = Profile.objects.get(name="net").draft
    assert "# measured" in draft
    assert "# the network" in draft
    assert yaml.load(draft).data["components"]["cilium"]["presets"] == ["bbr"]
    assert "kueue" in yaml.load(draft).data["components"]


def test_what_is_no_yaml_stands_beside_its_component_and_is_not_lost(olga):
    client = browser(olga)
    made(olga, "net", SOURCE.replace("policies: []\n", ""))
    page = client.get(at("profile_edit", "net"))
    answer = client.post(at("profile_edit", "net"), sent(page, component_values=["a: [1", ""], version="1"))
    assert answer.status_code == 422
    assert "a: [1" in answer.content.decode()
    assert "is not closed" in answer.context["components"][0].problems[0]
    assert "9000" in Profile.objects.get(name="net").draft


# ── Removal ───────────────────────────────────────────────────────────────────────────────────────────────────────────
GONE = SOURCE.replace("  volcano: {}\n", "  volcano: {remove: true, why: Kueue took its place}\n")


def test_a_removal_is_read_and_written_as_any_other_field():
    cilium, volcano = component_rows.read(GONE)
    assert volcano == ComponentFields("volcano", why="Kueue took its place", is_gone=True)
    assert component_rows.write(GONE, [cilium, volcano]) == GONE
    assert yaml.load(component_rows.write(SOURCE, [cilium, volcano])).data == yaml.load(GONE).data
    assert yaml.load(component_rows.write(GONE, [cilium, replace(volcano, is_gone=False)])).data["components"][
        "volcano"
    ] == {"why": "Kueue took its place"}


@pytest.mark.parametrize("value", ["false", "1", "'true'", "[true]"])
def test_a_removal_that_is_not_true_is_left_to_the_yaml(value):
    with pytest.raises(component_rows.Unshowable):
        component_rows.read(SOURCE.replace("volcano: {}", f"volcano: {{remove: {value}}}"))


def test_a_person_asks_for_a_removal_without_yaml_or_javascript(olga):
    client = browser(olga)
    made(olga, "net", SOURCE.replace("policies: []\n", ""))
    page = client.get(at("profile_edit", "net"))
    page = client.post(at("profile_edit", "net"), sent(page, intent="gone:volcano"))
    assert [row.fields.is_gone for row in page.context["components"]] == [False, True]
    assert "To be removed where it is installed" in page.content.decode()
    page = client.post(at("profile_edit", "net"), sent(page, intent="gone:kueue"))
    assert [row.fields.name for row in page.context["components"]] == ["cilium", "volcano", "kueue"]
    page = client.post(at("profile_edit", "net"), sent(page, intent="back:kueue"))
    assert [row.fields.is_gone for row in page.context["components"]] == [False, True, False]
    answer = client.post(at("profile_edit", "net"), sent(page, component_why=["fast", "superseded", ""], version="1"))
    assert answer.status_code == 302
    draft = yaml.load(Profile.objects.get(name="net").draft).data
    assert draft["components"]["volcano"] == {"remove": True, "why": "superseded"}
    assert not draft["components"]["kueue"]


def test_asking_for_a_removal_tells_which_comments_go_with_it(olga):
    client = browser(olga)
    made(olga, "net", SOURCE.replace("policies: []\n", ""))
    page = client.get(at("profile_edit", "net"))
    page = client.post(at("profile_edit", "net"), sent(page, intent="gone:cilium"))
    assert any("measured" in comment for comment in page.context["lost"])
    assert page.context["components"][0].fields == ComponentFields("cilium", is_gone=True)


@pytest.mark.parametrize(
    ("field", "value"), [("component_version", "1.2.3"), ("component_presets", "x"), ("component_values", "a: 1")]
)
def test_a_removal_with_more_is_refused_beside_it_by_field(olga, field, value):
    client = browser(olga)
    made(olga, "net", "components:\n  volcano: {remove: true}\n")
    page = client.get(at("profile_edit", "net"))
    answer = client.post(at("profile_edit", "net"), sent(page, **{field: [value]}, version="1"))
    assert answer.status_code == 422
    (row,) = answer.context["components"]
    assert any(text.startswith("remove ") and field.removeprefix("component_") in text for text in row.problems)
    assert value in answer.content.decode()


def test_a_removal_that_is_neither_true_nor_empty_is_refused_by_field(olga):
    client = browser(olga)
    made(olga, "net", "components:\n  volcano: {remove: true}\n")
    page = client.get(at("profile_edit", "net"))
    answer = client.post(at("profile_edit", "net"), sent(page, component_remove=["perhaps"], version="1"))
    assert answer.status_code == 422
    assert "remove must be true or empty" in answer.content.decode()
    assert "remove: true" in Profile.objects.get(name="net").draft


def test_a_link_opens_the_editor_with_a_removal_and_saves_nothing(olga):
    client = browser(olga)
    made(olga, "net", SOURCE.replace("policies: []\n", ""))
    page = client.get(at("profile_edit", "net") + "?gone=kueue")
    assert [(row.fields.name, row.fields.is_gone) for row in page.context["components"]][-1] == ("kueue", True)
    assert "kueue" not in Profile.objects.get(name="net").draft
    page = client.get(at("profile_edit", "net") + "?gone=nothing-known")
    assert [row.fields.name for row in page.context["components"]] == ["cilium", "volcano"]
