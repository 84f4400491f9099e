"""Components and policy objects on pages and over REST: shown with their origin, kept by the form, compared, judged."""

from __future__ import annotations

import html
from typing import Any

import pytest

from common import hooks
from profiles.content.content import Content, digest
from profiles.document.document import WARN, ProfileNote
from profiles.models import Profile, Revision
from tests.profiles.services.test_profiles import made, published
from tests.profiles.web.test_editor import Editor
from tests.profiles.web.test_pages import at, browser
from tests.profiles.web.test_sharing import caller

BASE = """\
settings: {vm.swappiness: 10}
components:
  cilium:
    version: 1.19.0
    presets: [native-routing]
    values: {ipam: {mode: kubernetes}, MTU: 9000}
    why: The network of all pods.
policies:
  - apiVersion: v1
    kind: ResourceQuota
    metadata: {name: gpus, namespace: team-a}
    spec: {hard: {requests.nvidia.com/gpu: 16, pods: 100, requests.cpu: 4, requests.memory: 1Gi, services: 2}}
"""
TOP = """\
extends: base
# ours
components:
  cilium:   {version: 1.20.0}   # newer
  volcano:
policies:
  - {apiVersion: scheduling.volcano.sh/v1beta1, kind: Queue, metadata: {name: training}, spec: {weight: 4}}
"""


@pytest.fixture(autouse=True)
def nobody_above(monkeypatch):
    """This room alone: what the components' catalog knows has tests of its own."""
    monkeypatch.setattr(hooks.profile_findings, "_subscribers", [])


@pytest.fixture
def top(olga) -> Revision:
    published(olga, "base", BASE)
    return published(olga, "top", TOP)


def text(answer: Any) -> str:
    return html.unescape(answer.content.decode())


@pytest.mark.parametrize("page", ["profile", "revision"])
def test_a_page_lists_components_and_objects_with_origin_and_folded_values(vera, top, page):
    path = at("profile", "top") if page == "profile" else at("revision", "top", 1)
    answer = browser(vera).get(path)

    cluster = answer.context["cluster"]
    assert [(row.wanted.name, row.is_inherited, row.count) for row in cluster.components] == [
        ("cilium", False, 2),
        ("volcano", False, 0),
    ]
    assert [(row.wanted.title, row.is_inherited) for row in cluster.objects] == [
        ("Queue/training", False),
        ("ResourceQuota/team-a/gpus", True),
    ]
    quota = cluster.objects[1]
    assert quota.first_facts == [
        ("hard.pods", "100"),
        ('hard["requests.cpu"]', "4"),
        ('hard["requests.memory"]', "1Gi"),
    ]
    assert quota.untold == 2
    shown = text(answer)
    assert "<details" in shown
    assert 'href="/components/cilium/"' in shown
    for words in ("Values of cilium", "ipam:\n  mode: kubernetes", "The network of all pods.", "base r1", "top r1"):
        assert words in shown
    assert "kind: ResourceQuota\nmetadata:\n  name: gpus" in shown


def test_a_revision_without_them_shows_no_empty_tables(vera, olga):
    published(olga)

    answer = browser(vera).get(at("revision", "base", 1))

    assert answer.context["cluster"] is None
    assert "Policy objects" not in text(answer)


def test_a_revision_that_wants_nothing_of_nodes_has_no_class(vera, olga):
    published(olga, source="components: {volcano: {}}\n")

    shown = text(browser(vera).get(at("revision", "base", 1)))

    assert "No kernel or host setting" not in shown
    assert 'class="cls' not in shown


# ── The editor ────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture
def editor(olga, top) -> Editor:
    made(olga, "mine", TOP.replace("extends: base", "extends: base\nsettings: {vm.swappiness: 10}"))
    return Editor(browser(olga), "mine")


def test_the_form_shows_them_and_saves_them_character_by_character(editor):
    draft = Profile.objects.get(name="mine").draft
    page = editor.context["page"]
    assert [row.wanted.name for row in page.cluster.components] == ["cilium", "volcano"]

    shown = editor.client.get(editor.path)
    assert "edited as YAML" in text(shown)
    assert "this draft" in text(shown)
    answer = editor.client.post(editor.path, editor.fields(value=["1"]) | {"intent": "save"})

    assert answer.status_code == 302
    assert Profile.objects.get(name="mine").draft == draft.replace("vm.swappiness: 10", "vm.swappiness: 1").replace(
        "settings: {vm.swappiness: 1}", "settings:\n  vm.swappiness: 1"
    )


def test_what_is_given_up_in_yaml_is_shown_in_the_form_with_what_it_was(olga, top):
    names = "components.cilium, policies.ResourceQuota/team-a/gpus, vm.swappiness"
    source = f"extends: base\nremove: [{names}]\nlabels: {{a: b}}\n"
    made(olga, "mine", source)

    page = Editor(browser(olga), "mine").context["page"]

    assert page.removed == [
        ("components.cilium", "1.19.0"),
        ("policies.ResourceQuota/team-a/gpus", "v1"),
        ("vm.swappiness", "= 10"),
    ]
    assert page.cluster is None


def test_a_text_with_a_problem_names_what_it_keeps(editor):
    answer = editor.press("check", value=["999"])

    assert (answer.context["page"].cluster, answer.context["page"].kept) == (None, ["components", "policies"])
    assert "policies; they are shown here once its problems are fixed" in text(answer)


def test_a_warning_about_an_object_is_no_problem_in_the_form(olga):
    source = TOP.replace("extends: base\n", "").replace("  volcano:\n", "")

    answer = browser(olga).post(at("profile_new"), {"source": source, "name": "x", "intent": "form"})

    assert answer.context["loose"] == []
    assert [note.code for note in answer.context["cautions"]] == ["needs-component"]
    assert answer.content.decode().count('class="note warn sm"') == 1
    assert 'class="note bad' not in answer.content.decode()


def test_a_problem_in_a_component_is_said_in_both_views_with_its_line(olga):
    source = "components:\n  cilium:\n    values:\n      MTU: 1e999\n"
    client = browser(olga)
    sent = {"source": source, "name": "x", "intent": "check"}

    as_text = client.post(at("profile_new"), sent)
    as_form = client.post(at("profile_new"), sent | {"intent": "form"})

    assert [(n.path, n.line) for n in as_text.context["judged"].problems] == [("components.cilium.values.MTU", 4)]
    assert "components.cilium.values.MTU" in text(as_form)
    assert "too large a number" in text(as_form)


# ── Compare, import, REST ─────────────────────────────────────────────────────────────────────────────────────────────
def test_any_two_revisions_are_compared_value_by_value(vera, top):
    answer = browser(vera).get(at("compare"), {"before": "base r1", "after": "top r1"})

    assert [(c.part, c.key, c.before, c.after) for c in answer.context["changes"]] == [
        ("components", "cilium", "1.19.0", "1.20.0"),
        ("components", "volcano", None, "newest tested version"),
        ("policies", "Queue/training", None, "scheduling.volcano.sh/v1beta1"),
        ("policies", "Queue/training spec.weight", None, "4"),
    ]
    assert "in the cluster" in text(answer)


def test_rest_gives_them_and_their_differences(olga, top):
    client = caller(olga)

    content = client.get(f"/api/v1/revisions/{top.pk}").json()["content"]
    assert content["components"][0] == {
        "name": "cilium",
        "version": "1.20.0",
        "presets": ["native-routing"],
        "values": {"ipam": {"mode": "kubernetes"}, "MTU": 9000},
        "origin": "top r1",
        "why": "The network of all pods.",
    }
    assert content["policies"][0] == {
        "api_version": "scheduling.volcano.sh/v1beta1",
        "kind": "Queue",
        "name": "training",
        "namespace": "",
        "body": {"spec": {"weight": 4}},
        "origin": "top r1",
    }
    base = Revision.objects.get(profile__name="base")
    diff = client.get(f"/api/v1/revisions/{top.pk}/diff", {"against": base.digest}).json()
    assert {"part": "components", "key": "cilium", "before": "1.19.0", "after": "1.20.0", "change": "changed",
            "apply_class": ""} in diff  # fmt: skip
    checked = client.post("/api/v1/profiles/top/actions/check", {"source": TOP}, format="json").json()
    assert checked["digest"] == top.digest
    exported = client.get(f"/api/v1/revisions/{top.pk}/exports/sysctl.d").json()
    assert ("components", "cilium") in [(entry["part"], entry["key"]) for entry in exported["missing"]]


def test_what_the_database_gives_back_has_the_digest_that_was_published(olga):
    """PostgreSQL keeps numbers as numbers, not as they were written."""
    numbers = "0.1, 1e-7, 1.0, 1e3, 12345678.9, -0.0, 9007199254740991, 2.5e-300"
    revision = published(olga, source=f"components: {{a: {{values: {{n: [{numbers}], t: 'é 🙂 \\t'}}}}}}\n")

    assert digest(Revision.objects.get(pk=revision.pk).flat) == revision.digest


def test_an_export_imported_elsewhere_means_the_same(olga, top):
    file = browser(olga).get(at("export_file", "top", 1, "profile")).content.decode()
    client = browser(olga)
    looked = client.post(at("profile_import"), {"name": "copy", "source": file, "intent": "look"})
    sent = {"name": "copy", "source": file, "token": looked.context["preview"].token, "intent": "store"}
    client.post(at("profile_import"), sent)

    assert published(olga, "copy", Profile.objects.get(name="copy").draft).digest == top.digest


# ── What rooms above know ─────────────────────────────────────────────────────────────────────────────────────────────
@pytest.fixture
def findings(monkeypatch):
    """Answers to `hooks.profile_findings`, as a room above would give them."""
    given: list[ProfileNote] = []
    contents: list[Content] = []

    def answer(content: Content) -> list[ProfileNote]:
        contents.append(content)
        return given

    monkeypatch.setattr(hooks.profile_findings, "_subscribers", [answer])
    return given, contents


def test_a_finding_that_blocks_is_a_problem_at_every_door(olga, findings):
    made(olga)
    given, contents = findings
    given.append(ProfileNote("components.cilium.version", 0, "unknown-version", "has no chart 1.20.0"))
    source = "components:\n  cilium:\n    version: 1.20.0\n"
    page, rest = browser(olga), caller(olga)

    answers = [
        page.post(at("profile_edit", "base"), {"source": source, "version": 1, "intent": "save"}),
        page.post(at("profile_import"), {"source": source, "name": "other", "intent": "look"}),
        rest.post("/api/v1/profiles", {"source": source, "name": "other"}, format="json"),
        rest.post("/api/v1/profiles/base/actions/check", {"source": source}, format="json"),
        rest.post("/api/v1/profiles/actions/import", {"source": source, "name": "other"}, format="json"),
    ]

    for answer in answers:
        assert answer.status_code == 422
        assert "has no chart 1.20.0" in text(answer)
    assert answers[3].json()["errors"][0]["field"] == "components.cilium.version (line 3)"
    assert [c.name for c in contents[-1].components] == ["cilium"]
    assert [profile.name for profile in Profile.objects.all()] == ["base"]


def test_a_draft_that_was_sound_when_it_was_saved_is_judged_again_when_it_is_published(olga, findings):
    profile = made(olga, source="components: {cilium: {}}\n")
    findings[0].append(ProfileNote("components.cilium", 0, "unknown", "is in no catalog"))

    answer = browser(olga).post(at("profile_publish", "base"), {"message": "", "version": profile.version})

    assert answer.status_code == 422
    assert "is in no catalog" in text(answer)
    assert not Revision.objects.exists()


def test_a_finding_that_warns_stands_among_the_warnings_at_its_line(olga, findings):
    findings[0].append(
        ProfileNote("components.cilium.values.mtu", 0, "unknown-value", "is no value of the chart", WARN)
    )
    source = "labels: {a: b}\ncomponents:\n  cilium:\n    values:\n      mtu: 1\n"
    made(olga, source=source)

    warnings = caller(olga).post("/api/v1/profiles/base/actions/check", {}, format="json").json()["warnings"]

    assert warnings == [
        {
            "path": "components.cilium.values.mtu",
            "line": 5,
            "code": "unknown-value",
            "message": "is no value of the chart",
        }
    ]


def test_a_finding_about_something_inherited_points_at_what_brings_it(olga, findings):
    published(olga, "base", BASE)
    findings[0].append(ProfileNote("components.cilium.values.MTU", 0, "x", "y", WARN))

    answer = caller(olga).post(
        "/api/v1/profiles/base/actions/check", {"source": "# first\nsettings: {vm.swappiness: 1}\n"}, format="json"
    )
    assert answer.json()["warnings"][0]["line"] == 1
    made(olga, "mine", "# first\nextends: base\nlabels: {a: b}\n")
    answer = caller(olga).post("/api/v1/profiles/mine/actions/check", {}, format="json")
    assert answer.json()["warnings"][0]["line"] == 2
