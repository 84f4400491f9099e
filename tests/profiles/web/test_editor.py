"""The editor's form: what each button does, what is kept when something is refused, and that it says what YAML says."""

from __future__ import annotations

import re
from typing import Any

import pytest

from profiles.models import Profile
from tests.profiles.services.test_profiles import SOURCE, made, published
from tests.profiles.web.test_pages import at, browser

BASE = "settings: {vm.swappiness: 10, vm.min_free_kbytes: '>= 65536'}\n"
MINE = "extends: base\nsettings:\n  # asked for by INC-218\n  vm.max_map_count: '>= 262144'  # keep\n"


@pytest.fixture
def edited(olga):
    """A profile whose draft extends a published one, and its editor."""
    published(olga, "base", BASE)
    made(olga, "mine", MINE)
    return Editor(browser(olga), "mine")


class Editor:
    """A browser's answers to the form it was shown."""

    def __init__(self, client: Any, name: str) -> None:
        self.client, self.path = client, at("profile_edit", name)
        self.context = client.get(self.path).context

    def fields(self, **changed: Any) -> dict[str, Any]:
        page = self.context["page"]
        sheet = page.sheet
        lines = [row.line for row in page.rows]
        return {
            "view": "form",
            "version": self.context["form"]["version"].value(),
            "source": self.context["source"],
            "extends": sheet.extends,
            "description": sheet.description,
            "key": [line.key for line in lines],
            "operator": [line.operator for line in lines],
            "value": [line.value for line in lines],
            "why": [line.why for line in lines],
            "label": [*(pair.key for pair in sheet.labels), ""],
            "label_value": [*(pair.value for pair in sheet.labels), ""],
            "annotation": [*(pair.key for pair in sheet.annotations), ""],
            "annotation_value": [*(pair.value for pair in sheet.annotations), ""],
            "taint": [*(taint.key for taint in sheet.taints), ""],
            "taint_value": [*(taint.value for taint in sheet.taints), ""],
            "taint_effect": [*(taint.effect for taint in sheet.taints), "NoSchedule"],
            "remove": list(sheet.remove),
        } | changed

    def press(self, intent: str, **changed: Any) -> Any:
        answer = self.client.post(self.path, self.fields(**changed) | {"intent": intent})
        if answer.context:
            self.context = answer.context
        return answer


def test_the_form_shows_each_setting_with_its_range_limits_risk_source_and_class(edited):
    edited.press("add:net.core.rmem_max", value=["262144"])
    shown = edited.press("check", value=["262144", "512Mi"]).content.decode()

    for phrase in (
        "2304 to 2147483647",
        "AKS accepts 212992 to 134217728",
        "GKE accepts 2304 to 2147483647",
        "fasterdata",
        "No effect on RDMA",
        "Live",
    ):
        assert phrase in shown, phrase
    assert "is 536870912 bytes" in shown
    assert "its own node pools refuse 536870912" in shown


def test_saving_untouched_fields_changes_not_a_character(edited):
    assert edited.press("save").status_code == 302
    assert Profile.objects.get(name="mine").draft == MINE


def test_a_setting_is_found_by_what_it_does_added_filled_in_and_saved_beside_the_comments(edited, olga):
    html = browser(olga).get(at("setting_search"), {"find": "swap"}).content.decode()
    assert 'value="add:vm.swappiness"' in html

    answer = edited.press("add:fs.aio-max-nr", find="aio")
    assert answer.status_code == 200
    assert edited.context["focus"] == "fs.aio-max-nr"
    assert "autofocus" in answer.content.decode()
    assert Profile.objects.get(name="mine").draft == MINE, "looking keeps nothing"
    edited.press("save", value=["262144", "1048576"], why=["", "async reads"])

    draft = Profile.objects.get(name="mine").draft
    assert draft.startswith(MINE)
    assert draft[len(MINE) :] == "  fs.aio-max-nr:\n    operator: '>='\n    value: 1048576\n    why: async reads\n"


def test_switching_to_yaml_and_back_loses_nothing(edited):
    answer = edited.press("yaml", value=["300000"])
    assert edited.context["view"] == "yaml"
    text = edited.context["source"]
    assert text == MINE.replace("262144", "300000")

    back = edited.client.post(edited.path, {"view": "yaml", "version": 1, "source": text, "intent": "form"})
    assert back.context["view"] == "form"
    assert [row.line.value for row in back.context["page"].rows] == ["300000"]
    assert back.context["source"] == text
    assert answer.status_code == back.status_code == 200


def test_what_cannot_be_published_still_crosses_over(edited):
    edited.press("yaml", value=["1O0"], label=["bad key!", ""], label_value=["x", ""])

    text = edited.context["source"]
    assert "1O0" in text
    assert "bad key!" in text
    back = edited.client.post(edited.path, {"view": "yaml", "version": 1, "source": text, "intent": "form"})
    assert [row.line.value for row in back.context["page"].rows] == ["1O0"]
    assert [row.row.key for row in back.context["page"].labels] == ["bad key!"]


def test_a_text_the_form_cannot_show_stays_yaml_and_says_why(edited):
    answer = edited.client.post(
        edited.path, {"view": "yaml", "version": 1, "source": "settings:\n  - a\n", "intent": "form"}
    )

    assert answer.context["view"] == "yaml"
    assert "the form cannot show" in answer.context["unreadable"]
    assert "- a" in answer.content.decode()


def test_bad_input_is_named_beside_its_field_and_kept(edited):
    answer = edited.press(
        "save",
        value=["1O000"],
        taint=["example.com/x", ""],
        taint_value=["!", ""],
        taint_effect=["Never", "NoSchedule"],
    )

    assert answer.status_code == 422
    row = answer.context["page"].rows[0]
    assert (row.line.value, row.problems[0].path) == ("1O000", "settings.vm.max_map_count")
    assert "is not a whole number" in row.problems[0].message
    taint = answer.context["page"].taints[0]
    assert (taint.row.value, taint.row.effect, len(taint.problems)) == ("!", "Never", 1)
    assert 'value="1O000"' in answer.content.decode()
    assert Profile.objects.get(name="mine").draft == MINE


def test_two_labels_of_one_name_are_refused_and_both_are_kept(edited):
    answer = edited.press("save", label=["a", "a", ""], label_value=["1", "2", ""])

    assert answer.status_code == 422
    assert "a is given 2 times" in answer.content.decode()
    assert [row.row.value for row in answer.context["page"].labels] == ["1", "2"]


def test_inherited_settings_show_their_origin_and_can_be_changed_given_up_and_taken_again(edited):
    page = edited.context["page"]
    assert [(i.wanted.key, i.wanted.origin) for i in page.inherited] == [
        ("vm.min_free_kbytes", "base r1"),
        ("vm.swappiness", "base r1"),
    ]

    edited.press("add:vm.swappiness")
    row = next(row for row in edited.context["page"].rows if row.line.key == "vm.swappiness")
    assert (row.line.value, row.replaces.origin) == ("10", "base r1")
    edited.press("giveup:vm.swappiness")
    assert edited.context["page"].removed == [("vm.swappiness", "= 10")]
    assert [i.wanted.key for i in edited.context["page"].inherited] == ["vm.min_free_kbytes"]
    edited.press("save")
    assert "remove:\n  - vm.swappiness\n" in Profile.objects.get(name="mine").draft


def test_a_given_up_setting_is_taken_again(edited):
    edited.press("giveup:vm.swappiness")
    edited.press("keep:vm.swappiness")

    assert edited.context["page"].removed == []
    assert len(edited.context["page"].inherited) == 2


def focused(answer: Any) -> str:
    """The one element that the page puts the focus on."""
    autofocused = re.findall(r"<(?:input|select|textarea|button)\b[^>]*\bautofocus\b[^>]*>", answer.content.decode())
    assert len(autofocused) == 1, autofocused
    return str(autofocused[0])


def test_whoever_works_by_keyboard_goes_on_where_the_work_is(edited):
    assert "autofocus" not in edited.client.get(edited.path).content.decode(), "a page that was opened is read first"
    assert 'id="v-fs.aio-max-nr"' in focused(edited.press("add:fs.aio-max-nr"))
    edited.press("check", value=["262144", "1048576"])
    assert 'aria-label="Take vm.swappiness again"' in focused(edited.press("giveup:vm.swappiness"))
    assert 'id="f-find"' in focused(edited.press("keep:vm.swappiness"))
    assert 'id="f-find"' in focused(edited.press("drop:fs.aio-max-nr"))
    assert 'id="id_source"' in focused(edited.press("yaml"))
    back = {"view": "yaml", "version": 1, "source": MINE, "intent": "form"}
    assert 'id="f-find"' in focused(edited.client.post(edited.path, back))
    assert 'id="id_source"' in focused(edited.client.post(edited.path, back | {"source": "settings: {"}))


def test_removing_a_row_says_which_comments_go_with_it(edited):
    answer = edited.press("drop:vm.max_map_count")

    assert edited.context["lost"] == ("# keep",)
    assert "Saving loses 1 comment" in answer.content.decode()


def test_the_verdict_while_typing_stands_beside_each_row_and_keeps_nothing(edited, olga):
    answer = browser(olga).post(at("verdict", "mine"), edited.fields(value=["x"]))

    shown = answer.content.decode()
    assert answer.status_code == 200
    assert 'id="m-vm.max_map_count" hx-swap-oob="true"' in shown
    assert "is not a whole number" in shown
    assert 'name="value"' not in shown, "what is typed is left alone"
    assert Profile.objects.get(name="mine").version == 1


@pytest.mark.parametrize("broken", [{"operator": []}, {"label_value": []}, {"value": ["1"] * 700, "key": ["k"] * 700}])
def test_a_form_with_holes_is_refused(edited, broken):
    assert edited.press("save", **broken).status_code == 422
    assert Profile.objects.get(name="mine").draft == MINE


def test_a_new_profile_is_made_from_the_form(olga):
    client = browser(olga)
    added = client.post(at("profile_new"), {"view": "form", "source": "", "intent": "add:vm.swappiness"})
    assert [row.line.key for row in added.context["page"].rows] == ["vm.swappiness"]
    assert not added.context["form"].errors, "nobody asked for the name yet"

    sent = {"view": "form", "source": "", "key": "vm.swappiness", "operator": "=", "value": "1", "why": "latency"}
    nameless = client.post(at("profile_new"), sent | {"intent": "save"})
    assert (nameless.status_code, list(nameless.context["form"].errors)) == (422, ["name"])
    assert nameless.context["page"].rows[0].line.value == "1"
    assert client.post(at("profile_new"), sent | {"intent": "save", "name": "low"})["Location"] == at("profile", "low")
    assert Profile.objects.get().draft == "settings:\n  vm.swappiness:\n    value: 1\n    why: latency\n"


def test_the_editor_is_the_operators(olga, vera):
    made(olga)
    client = browser(vera)

    for path in (at("profile_edit", "base"), at("profile_new"), at("setting_search")):
        assert client.get(path).status_code == 403, path
    for path in (at("verdict", "base"), at("verdict_new"), at("profile_edit", "base")):
        assert client.post(path, {"view": "form"}).status_code == 403, path
    assert Profile.objects.get().draft == SOURCE


def test_words_with_markup_are_shown_as_words(olga):
    shown = browser(olga).get(at("setting_search"), {"find": "<b>x</b>"}).content.decode()

    assert "<b>x" not in shown
    assert "No setting that may be set" in shown
