"""Pages and REST of the catalog, its documents, and the drawing of what waits for what."""

from __future__ import annotations

import re
from io import StringIO
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse

from components.catalog import catalog, docs, graph, presentation
from profiles.services import editing
from tests.components.catalog.test_catalog import write
from tests.factories import UserFactory
from tests.profiles.web.test_pages import browser

ROOT = Path(__file__).resolve().parents[3]
NAMES = [component.name for component in catalog.all()]


@pytest.fixture
def client(db):
    return browser(UserFactory(roles=["viewer"]))


def text_of(answer) -> str:
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", answer.content.decode().replace("&#x27;", "'").replace("&quot;", '"'))


# ── Pages ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_the_list_links_to_each_component_and_finds_by_name_purpose_and_intent(client):
    page = text_of(client.get(reverse("components:components")))
    for name in NAMES:
        assert reverse("components:component", args=[name]) in page

    def search(query: str) -> list[str]:
        answer = client.get(reverse("components:components"), {"q": query})
        return [component.name for component in answer.context["components"]]

    assert search("rdma") == [component.name for component in catalog.search("rdma")]
    assert search("PREEMPTION") == ["volcano"]
    assert search("model-load nvme") == ["local-static-provisioner", "gpu-operator"]
    assert search("xyzzy") == []
    assert "No component matches" in text_of(client.get(reverse("components:components"), {"q": "xyzzy"}))


@pytest.mark.parametrize("name", NAMES)
def test_a_components_page_says_all_that_the_catalog_knows(client, name):
    component = catalog.get(name)

    page = text_of(client.get(reverse("components:component", args=[name])))

    def says(text: str) -> bool:
        return re.sub(r"\s+", " ", text) in page.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")

    for preset in component.presets.values():
        assert says(preset.why), preset.name
        assert says(f'id="preset-{preset.name}"')
    hazards = (*component.upgrade_hazards, *component.removal_hazards, *component.running_hazards)
    assert all(says(hazard.text) for hazard in hazards)
    assert all(says(source.url) for hazard in hazards for source in hazard.sources if source.url)
    assert all(says(decision.question) for decision in component.decisions)
    assert says(component.chart.reference)
    assert says(component.disruption_text)
    for ready in presentation.readiness(component):
        assert says(ready.sentence[1:]), ready


def test_an_unknown_component_is_a_404(client):
    answer = client.get(reverse("components:component", args=["cillium"]))
    assert answer.status_code == 404
    assert "Page not found" in answer.content.decode()


def test_a_new_profile_with_each_preset_can_be_judged_as_it_stands(db):
    for name in NAMES:
        component = catalog.get(name)
        for preset in (None, *component.presets.values()):
            source = presentation.wish(component, preset)
            (wanted,) = editing.check(source).content.components
            assert (wanted.name, wanted.presets) == (name, (preset.name,) if preset else ())


def test_only_who_may_write_profiles_is_offered_a_new_one(client):
    address = reverse("components:component", args=["volcano"])
    offered = f'href="{reverse("profiles:profile_new")}?source='

    assert offered not in text_of(client.get(address))
    assert "You need the role operator." in text_of(client.get(address))
    page = text_of(browser(UserFactory(roles=["operator"])).get(address))
    assert page.count(offered) == 1 + len(catalog.get("volcano").presets)
    assert "You need the role operator." not in page


def test_pages_cost_what_a_page_costs(client, django_assert_max_num_queries):
    client.get(reverse("components:components"))
    with django_assert_max_num_queries(6):  # the frame's: user, roles, counts
        client.get(reverse("components:components"))
    with django_assert_max_num_queries(6):
        client.get(reverse("components:component", args=["gpu-operator"]))


def test_a_component_from_one_file_has_its_page_and_its_place_in_the_order(client, tmp_path):
    write(tmp_path, "requires: [volcano]")
    with catalog.extended(tmp_path):
        page = text_of(client.get(reverse("components:component", args=["small"])))
        listed = text_of(client.get(reverse("components:components")))
    assert "Bigger" in page
    assert "replicas = 2" in page
    assert "A small one" in listed


# ── REST ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_the_list_over_rest_filters_orders_and_refuses_what_it_does_not_know(client):
    def names(**query: str) -> list[str]:
        answer = client.get("/api/v1/components", query)
        assert answer.status_code == 200, answer.json()
        return [row["name"] for row in answer.json()["results"]]

    assert names() == NAMES
    assert names(ordering="-name") == sorted(NAMES, reverse=True)
    in_the_system = [name for name in NAMES if catalog.get(name).namespace == "kube-system"]
    assert {"cilium", "local-static-provisioner"} <= {*in_the_system}
    assert names(namespace="kube-system") == in_the_system
    assert {"local-static-provisioner", "gpu-operator"} <= {*names(intent="model-load")} < {*NAMES}
    assert names(intent="model-load") == [name for name in NAMES if name in names(intent="model-load")]
    assert {"kueue", "volcano"} <= {*names(q="gang")} < {*NAMES}
    assert client.get("/api/v1/components", {"fields": "name"}).json()["results"][0] == {"name": "cilium"}
    for wrong in ({"color": "red"}, {"ordering": "size"}, {"intent": "fun"}, {"fields": "nothing"}):
        answer = client.get("/api/v1/components", wrong)
        assert answer.status_code == 400
        assert next(iter(wrong)) in str(answer.json()["errors"])


@pytest.mark.parametrize("name", NAMES)
def test_one_over_rest_says_what_the_page_says(client, name):
    component = catalog.get(name)

    body = client.get(f"/api/v1/components/{name}").json()

    assert [preset["name"] for preset in body["presets"]] == list(component.presets)
    assert [preset["values"] for preset in body["presets"]] == [dict(p.values) for p in component.presets.values()]
    assert len(body["readiness"]) == len(component.readiness)
    assert body["newest"] == component.newest


def test_an_unknown_one_over_rest_is_a_problem(client):
    answer = client.get("/api/v1/components/gpu-operatr")
    assert answer.status_code == 404
    assert "did you mean gpu-operator" in answer.json()["detail"]


# ── Documents ─────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_the_documents_are_what_the_catalog_says():
    folder = ROOT / "docs" / "components"
    documents = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.md")}

    assert documents == docs.everything(), "run manage.py component_docs --write"


def test_the_command_says_which_documents_are_stale_and_writes_them(settings, tmp_path):
    settings.BASE_DIR = tmp_path
    (tmp_path / "docs").mkdir()
    with pytest.raises(CommandError, match=r"not current: README.md, .*cert-manager.md, cilium.md"):
        call_command("component_docs", stdout=StringIO())
    call_command("component_docs", write=True, stdout=StringIO())
    gone = tmp_path / "docs" / "components" / "gone.md"
    gone.write_text("x")
    with pytest.raises(CommandError, match=r"not current: gone.md"):
        call_command("component_docs", stdout=StringIO())
    call_command("component_docs", write=True, stdout=StringIO())
    assert not gone.exists()
    out = StringIO()
    call_command("component_docs", stdout=out)
    assert "is what the catalog says" in out.getvalue()


def test_the_fields_of_a_file_are_all_explained(tmp_path):
    text = (ROOT / "docs" / "components.md").read_text(encoding="utf-8")
    table = text[text.index("| Field |") :]
    explained = {word for line in table.splitlines()[2:] for word in re.findall(r"`(\w+)`", line.split("|")[1])}
    used: set[str] = set()
    for path in catalog.HERE.glob("*.yaml"):
        used |= set(re.findall(r"^(\w+):", path.read_text(encoding="utf-8"), re.MULTILINE))
    assert used <= explained


# ── The drawing ───────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize("here", ["", *NAMES])
def test_no_two_boxes_overlap_and_every_arrow_goes_to_the_right(here):
    drawn = graph.around(here) if here else graph.whole()

    places = [(box.x, box.y) for box in drawn.boxes]
    assert len(set(places)) == len(places)
    for box in drawn.boxes:
        for other in drawn.boxes:
            if box is not other and box.x == other.x:
                assert abs(box.y - other.y) >= drawn.box_height
    at = {box.name: box for box in drawn.boxes}
    assert here or at.keys() == set(NAMES)
    for component in catalog.all():
        for other in graph.before(component) & at.keys() if component.name in at else ():
            assert at[other].x < at[component.name].x
    assert [box.name for box in drawn.boxes if box.is_here] == ([here] if here else [])
    assert max(box.x + drawn.box_width for box in drawn.boxes) <= drawn.width
    assert max(box.y + drawn.box_height for box in drawn.boxes) <= drawn.height


def test_a_components_drawing_has_what_comes_before_it_and_right_behind_it():
    names = {box.name for box in graph.around("kserve-crd").boxes}
    assert {"kserve-crd", "kserve"} <= names
    assert "volcano" not in names
    behind = {box.name for box in graph.around("kserve").boxes}
    assert {"kserve-crd", *graph.before(catalog.get("kserve"))} <= behind


def test_a_long_arrow_runs_between_the_rows_and_an_implied_one_is_left_out(tmp_path):
    write(tmp_path, name="a")
    write(tmp_path, "after: [a]", name="b")
    write(tmp_path, "after: [a, b]", name="c")
    write(tmp_path, name="x")
    write(tmp_path, "after: [c, x]", name="d")
    write(tmp_path, "after: [x, d]", name="e")
    known = catalog.load(tmp_path)
    arrows = graph._direct({component.name: graph.before(component) for component in known.components.values()})

    assert arrows["c"] == {"b"}
    assert arrows["e"] == {"d"}
    columns = graph._columns(arrows)
    assert [columns[name] for name in "abcde"] == [0, 1, 2, 3, 4]
    assert graph._edge([(0, 0), (100, 100), (200, 0)]).count("C") == 2


# ── Search ────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_the_search_finds_components_by_name_and_purpose(client):
    def search(words: str) -> list[str]:
        answer = client.get("/api/v1/search", {"q": words}).json()
        groups = [group for group in answer["groups"] if group["kind"] == "component"]
        return [hit["id"] for group in groups for hit in group["results"]]

    assert search("volc") == ["volcano"]
    assert search("node-feat")[0] == "node-feature-discovery"
    assert search("xyzzy") == []
