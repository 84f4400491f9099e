"""A form's fields are written into the text they came from: its author finds every comment again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from contract.nodetuning import Operator
from profiles.catalog import known_settings
from profiles.document import schema
from profiles.editor import form_data, yaml_patch
from profiles.editor.form_data import MarkLine, SettingLine, Sheet, TaintLine
from tests.profiles.editor.test_form_data import COMMENTED
from tests.profiles.strategies import ALONE, documents, marks, wishes

_word = st.from_regex(r"[a-z][a-z0-9 .]{0,20}[a-z]", fullmatch=True).map(form_data.one_line)  # as the form takes it


@st.composite
def commented(draw: Any) -> str:
    """A sound profile with comments above, between, behind and below its lines."""
    out: list[str] = []
    for number, line in enumerate(schema.render(draw(documents())).splitlines()):
        place = draw(st.sampled_from(["none", "none", "above", "behind", "blank"]))
        indent = line[: len(line) - len(line.lstrip(" "))]
        if place == "above":
            out.append(f"{indent}# above {number} {draw(_word)}")
        if place == "blank":
            out.append("")
        out.append(f"{line}  # behind {number} {draw(_word)}" if place == "behind" else line)
    out.append("# the end")
    return "\n".join(out) + "\n"


@st.composite
def retyped(draw: Any, before: Sheet) -> Sheet:
    """Other values, operators and reasons for what is there, and more rows; nothing is removed."""
    lines = tuple(
        replace(
            line,
            operator=draw(st.sampled_from([line.operator, *map(str, Operator)])),
            value=draw(st.sampled_from([line.value, "17", "a b", "512Mi"])),
            why=draw(st.just(line.why) | _word),
        )
        for line in before.settings
    )
    there = {line.key for line in lines}
    more = [wish for wish in draw(st.lists(wishes(), max_size=2)) if wish.key not in there]
    added = {wish.key: SettingLine(wish.key, wish.operator, wish.value, form_data.one_line(wish.why)) for wish in more}
    return replace(
        before,
        extends=draw(st.just(before.extends) | st.sampled_from(["base", "base r3"])),
        description=draw(st.just(before.description) | _word),
        settings=(*lines, *added.values()),
        labels=_other_values(draw, before.labels),
        annotations=_other_values(draw, before.annotations),
        taints=(*before.taints, *draw(st.sampled_from([(), (TaintLine("x.io/new", "v", "NoExecute"),)]))),
        remove=(*before.remove, *draw(st.sampled_from([(), ("vm.min_free_kbytes",)]))),
    )


def _other_values(draw: Any, pairs: tuple[MarkLine, ...]) -> tuple[MarkLine, ...]:
    added = {key: value for key, value in draw(marks).items() if key not in {pair.key for pair in pairs}}
    changed = tuple(replace(pair, value=draw(st.just(pair.value) | _word)) for pair in pairs)
    return (*changed, *(MarkLine(*item) for item in added.items()))


def judge(source: str, typed: Sheet) -> None:
    written = yaml_patch.write(typed, source)

    assert form_data.read(written.source).same_as(typed), "form -> YAML -> form"
    assert written.lost == ()
    assert sorted(yaml_patch.comments(written.source)) == sorted(yaml_patch.comments(source))
    assert yaml_patch.write(form_data.read(written.source), written.source).source == written.source


@settings(max_examples=60)
@given(st.data())
def test_no_comment_is_lost_while_nothing_is_removed(data: Any) -> None:
    source = data.draw(commented())

    judge(source, data.draw(retyped(form_data.read(source))))


@settings(max_examples=40)
@given(st.data())
def test_nor_in_a_text_laid_out_by_hand(data: Any) -> None:
    judge(COMMENTED, data.draw(retyped(form_data.read(COMMENTED))))


@settings(max_examples=40)
@given(st.data())
def test_what_did_not_change_stays_to_the_character(data: Any) -> None:
    source = data.draw(commented())
    before = form_data.read(source)
    new = data.draw(st.sampled_from([info.key for info in ALONE if not before.line(info.key)]))
    value = "1" if known_settings.get(new).is_number else "x"

    written = yaml_patch.write(replace(before, settings=(*before.settings, SettingLine(new, "=", value))), source)

    old = source.splitlines()
    kept = iter(written.source.splitlines())
    assert all(line in kept for line in old), "the old lines, in their order, with the new one among them"
    assert len(written.source.splitlines()) - len(old) <= 2


@settings(max_examples=60)
@given(st.data())
def test_only_what_is_removed_takes_comments_along_and_they_are_named(data: Any) -> None:
    source = data.draw(commented())
    before = form_data.read(source)
    if not before.settings:
        return
    gone = data.draw(st.sampled_from(before.settings))

    written = yaml_patch.write(
        replace(before, settings=tuple(line for line in before.settings if line != gone)), source
    )

    assert form_data.read(written.source).line(gone.key) is None
    assert sorted([*yaml_patch.comments(written.source), *written.lost]) == sorted(yaml_patch.comments(source))
    assert len(written.lost) <= 5, "of the setting's own four lines, and of a heading that has nothing below it"
