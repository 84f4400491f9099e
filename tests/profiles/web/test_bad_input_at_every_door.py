"""Bad input is refused at each door: the editor's text and form, the verdict, the import and REST."""

from __future__ import annotations

import html
import json
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile

from profiles.models import Profile
from tests.profiles.services.test_profiles import SOURCE, made
from tests.profiles.web.test_pages import at, browser
from tests.profiles.web.test_sharing import caller

LONG = "settings:\n" + "  # a comment of no use to anybody\n" * 20_000
"""More than a profile may have, and less than a request may."""

TEXTS = {
    "an anchor that explodes": ("a: &a [x]\nb: &b [*a, *a]\nc: [*b, *b]\n", "anchors and aliases"),
    "most of a megabyte": (LONG, "262144|262,144"),
    "binary": ("settings:\n  vm.swappiness: \x01\x02\n", "character"),
    "a line break in a key": ('settings:\n  "vm.swap\\npiness": 1\n', "contains '\\n'"),
    "a slash in a key": ("settings:\n  vm.x/swappiness: 1\n", "contains '/'"),
    "a path in a key": ("settings:\n  vm/../../etc/shadow: 1\n", "contains '/'|empty part"),
    "a unit where pages are counted": ("settings:\n  hugepages-2Mi: 64Mi\n", "counted in pages"),
    "a unit where KiB are counted": ("settings:\n  vm.min_free_kbytes: 64Mi\n", "write 65536 instead of 64Mi"),
    "out of range": ("settings:\n  vm.swappiness: 999\n", "999 is out of range: 0 to 200"),
    "denied": ("settings:\n  kernel.core_pattern: core\n", "names a program"),
    "an unknown key": ("settings:\n  vm.swapiness: 1\n", "did you mean vm.swappiness?"),
    "no YAML": ("settings: {\n", "line"),
    "no mapping": ("- 1\n", "mapping"),
    "values that are no YAML": ("components:\n  cilium:\n    values: {a: [}\n", "bracket or brace"),
    "values that are text": (
        "components:\n  cilium:\n    values: |\n      a: b\n",
        "must be a mapping, as in the chart",
    ),
    "values that are too deep": (
        "components:\n  cilium:\n    values:\n      a: " + "[" * 17 + "]" * 17 + "\n",
        "deeper than 16 levels",
    ),
    "an abyss of values": ("components: {a: {values: " + "{a: " * 60 + "1" + "}" * 62, "deeper than 24 levels"),
    "values with anchors that explode": (
        "components:\n  a:\n    values:\n      a: &a [x]\n      b: &b [*a, *a]\n      c: [*b, *b]\n",
        "anchors and aliases",
    ),
    "NUL in values": ('components:\n  a:\n    values: {x: "\\0"}\n', "U+0000"),
    "a number beyond all bounds": ("components:\n  a:\n    values: {x: 1e999}\n", "too large a number"),
    "a component's name": ("components:\n  ../cilium: {}\n", "53 lower-case letters"),
    "a version that is a range": ("components:\n  cilium: {version: '>=1.20'}\n", "must be one version"),
    "an object of another kind": (
        "policies:\n  - {apiVersion: v1, kind: Secret, metadata: {name: a, namespace: b}}\n",
        "cannot be wanted here",
    ),
    "an object's name": ("policies:\n  - {apiVersion: v1, kind: Namespace, metadata: {name: A/b}}\n", "63 lower-case"),
    "an object's namespace": (
        "policies:\n  - {apiVersion: v1, kind: LimitRange, metadata: {name: a, namespace: ..}, spec: {limits: []}}\n",
        "must be 1 to 63 lower-case letters",
    ),
    "objects as a mapping": ("policies: {a: b}\n", "must be a list of Kubernetes objects"),
}
"""name → (text, what its answer says: any of several words)"""


def names_problem(words: str, answer: Any) -> bool:
    text = answer.content.decode()
    return any(word in text or word in html.unescape(text) for word in words.split("|"))


def in_box(text: str) -> str:
    """Return the text as a page shows it: a browser cannot show U+0000, and HTML has no way to write it."""
    return html.escape(text, quote=True)


@pytest.mark.parametrize(("text", "words"), TEXTS.values(), ids=TEXTS)
def test_the_editors_text_is_refused_named_and_kept(olga, text, words):
    made(olga)
    client = browser(olga)

    for intent in ("save", "check"):
        answer = client.post(at("profile_edit", "base"), {"source": text, "version": 1, "intent": intent})
        assert answer.status_code in (200, 422)
        assert answer.status_code == 422 or intent == "check"
        assert names_problem(words, answer), answer.content.decode()[-3000:]
        assert answer.context["source"] == text
        assert in_box(text) in answer.content.decode(), "nothing typed is lost"
    assert Profile.objects.get().draft == SOURCE


@pytest.mark.parametrize(("text", "words"), TEXTS.values(), ids=TEXTS)
def test_a_new_profiles_text_is_refused_named_and_kept(olga, text, words):
    answer = browser(olga).post(at("profile_new"), {"source": text, "name": "base", "intent": "save"})

    assert answer.status_code == 422
    assert names_problem(words, answer)
    assert in_box(text) in answer.content.decode()
    assert answer.context["form"]["name"].value() == "base"
    assert not Profile.objects.exists()


@pytest.mark.parametrize(("text", "words"), TEXTS.values(), ids=TEXTS)
def test_an_import_is_refused_named_and_kept(olga, text, words):
    client = browser(olga)

    for intent in ("look", "store"):
        answer = client.post(at("profile_import"), {"source": text, "name": "base", "intent": intent, "token": "x"})
        assert answer.status_code == 422
        assert names_problem(words, answer)
        assert in_box(text) in answer.content.decode()
    assert not Profile.objects.exists()


@pytest.mark.parametrize(("text", "words"), TEXTS.values(), ids=TEXTS)
def test_a_chosen_file_is_refused_named_and_shown(olga, text, words):
    """A browser without JavaScript sends the file like this."""
    file = SimpleUploadedFile("profile.yaml", text.encode())

    answer = browser(olga).post(at("profile_import"), {"name": "base", "source": "", "file": file, "intent": "look"})

    assert answer.status_code == 422
    assert names_problem(words, answer)
    assert in_box(text[:200]) in answer.content.decode()
    assert not Profile.objects.exists()


def test_a_file_that_is_no_text_is_refused_and_one_that_is_is_read(olga):
    client = browser(olga)

    def sent(raw: bytes, **fields: Any) -> Any:
        file = SimpleUploadedFile("profile.yaml", raw)
        return client.post(
            at("profile_import"), {"name": "base", "source": "", "file": file, "intent": "look"} | fields
        )

    wrong = sent(b"\x7fELF\xff\xfe")
    assert (wrong.status_code, list(wrong.context["form"].errors)) == (422, ["file"])
    assert "not text in UTF-8" in wrong.content.decode()
    assert names_problem("Is empty", sent(b""))
    right = sent(SOURCE.replace("\n", "\r\n").encode())
    assert (right.status_code, right.context["form"]["source"].value()) == (200, SOURCE)
    assert right.context["preview"].would == "create"
    typed = sent(b"labels: {a: b}\n", source=SOURCE)
    assert typed.context["preview"].changes[0].key == "vm.swappiness", "what stands in the box comes first"


@pytest.mark.every_case
@pytest.mark.parametrize(("text", "words"), TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("door", ["create", "draft", "check", "import"])
def test_rest_names_the_field_of_a_bad_text(olga, door, text, words):
    made(olga)
    client = caller(olga)
    body = {"source": text, "name": "other"}
    answer = {
        "create": lambda: client.post("/api/v1/profiles", body, format="json"),
        "draft": lambda: client.patch(
            "/api/v1/profiles/base", {"source": text}, format="json", headers={"If-Match": '"1"'}
        ),
        "check": lambda: client.post("/api/v1/profiles/base/actions/check", {"source": text}, format="json"),
        "import": lambda: client.post("/api/v1/profiles/actions/import", body, format="json"),
    }[door]()

    assert answer.status_code == 422
    assert answer["Content-Type"] == "application/problem+json"
    assert answer.json()["errors"][0]["field"]
    assert any(word in json.dumps(answer.json(), ensure_ascii=False).replace("\\\\", "\\") for word in words.split("|"))
    assert [profile.draft for profile in Profile.objects.all()] == [SOURCE]


@pytest.mark.parametrize(
    ("sent", "status", "words"),
    [("settings:\n  vm.swappiness: 1\x00\n", 400, "source"), ("# x\n" * 300_000, 413, "at most 1,048,576")],
    ids=["a zero byte", "more than a megabyte"],
)
def test_what_no_request_may_hold_is_refused_before_it_is_read(olga, sent, status, words):
    made(olga)
    client, rest = browser(olga), caller(olga)

    for answer in (
        client.post(at("profile_edit", "base"), {"source": sent, "version": 1}),
        client.post(at("verdict", "base"), {"source": sent}),
        client.post(at("profile_import"), {"source": sent, "name": "base"}),
        rest.post("/api/v1/profiles/actions/import", {"source": sent, "name": "base"}, format="json"),
    ):
        assert answer.status_code == status or (answer.status_code == 422 and "json" in answer["Content-Type"])
        assert names_problem(words, answer)
    assert Profile.objects.get().draft == SOURCE


# ── The form ──────────────────────────────────────────────────────────────────────────────────────────────────────────
ROWS = {
    "wrong unit": ("hugepages-2Mi", "=", "64Mi", "counted in pages"),
    "out of range": ("vm.swappiness", "=", "999", "0 to 200"),
    "denied": ("kernel.core_pattern", "=", "|/bin/sh", "names a program"),
    "unknown": ("vm.swapiness", "=", "1", "did you mean vm.swappiness?"),
    "slash": ("vm.x/y", "=", "1", "contains '/'"),
    "dots": ("vm..x", "=", "1", "empty part"),
    "path": ("vm/../../etc/shadow", "=", "1", "contains '/'|empty part"),
    "line break in the key": ("vm.swap\npiness", "=", "1", "U+000A"),
    "line break in the value": ("kernel.pid_max", "=", "4194304\n5", "U+000A"),
    "a control character": ("vm.swappiness", "=", "1\x1b", "U+001B"),
    "no value": ("vm.swappiness", "=", "", "no value"),
    "operator": ("vm.swappiness", "~", "1", "an operator is"),
    "a long value": ("cmdline.pci", "=", "x" * 5000, "longer than"),
    "markup": ("<script>", "=", "</textarea>", "contains '<'"),
    "an anchor": ("vm.swappiness", "=", "&a [*a]", "is not a whole number"),
}


@pytest.mark.parametrize(("key", "operator", "value", "words"), ROWS.values(), ids=ROWS)
def test_a_bad_row_is_refused_named_and_kept(olga, key, operator, value, words):
    made(olga)
    client = browser(olga)
    sent = {"view": "form", "source": SOURCE, "version": 1, "key": key, "operator": operator, "value": value, "why": ""}

    for path, intent in (("profile_edit", "save"), ("profile_edit", "check"), ("verdict", "check")):
        answer = client.post(at(path, "base"), sent | {"intent": intent})
        assert answer.status_code == (422 if intent == "save" else answer.status_code)
        assert answer.status_code in (200, 422)
        if path == "profile_edit":
            assert names_problem(words, answer), answer.content.decode()[-3000:]
            row = answer.context["page"].rows[0].line
            assert (row.key, row.operator, row.value) == (key, operator, value), "nothing typed is lost"
        assert "<script>" not in answer.content.decode().replace("<script src", "")
    assert Profile.objects.get().draft == SOURCE


@pytest.mark.parametrize("view", ["form", "yaml", "", "<b>"])
@pytest.mark.parametrize(
    "intent", ["add:", "add:vm/../x", "drop:none", "giveup:", "keep:x", "yaml", "form", "\x1b", "x" * 9999]
)
def test_no_button_breaks_the_editor(olga, view, intent):
    made(olga)

    answer = browser(olga).post(
        at("profile_edit", "base"), {"view": view, "source": SOURCE, "version": 1, "intent": intent}
    )

    assert answer.status_code in (200, 302, 422)
    assert Profile.objects.get().draft == SOURCE


def test_a_library_profile_is_not_opened_for_editing(olga):
    made(olga)
    Profile.objects.update(is_library=True)

    for answer in (browser(olga).get(at("profile_edit", "base")), browser(olga).post(at("profile_edit", "base"), {})):
        assert answer.status_code == 409
        assert names_problem("make a profile that extends base", answer)
