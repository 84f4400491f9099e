"""The form and the YAML are one text in two views: nothing is lost on the way, comments included."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import Invalid
from profiles.document import schema
from profiles.editor import form_data, yaml_patch
from profiles.editor.form_data import MarkLine, SettingLine, Sheet, TaintLine
from tests.profiles.strategies import documents

COMMENTED = """\
# Written by the storage team.
extends: gpu-baseline  # the newest
settings:
  # Asked for by INC-218.
  vm.swappiness: 10  # not 0
  vm.max_map_count:
    # loaders map many files
    value: ">= 262144"
    why: >
      Loaders map
      many files.

  # The last word.
  fs.aio-max-nr:
    operator: ">="
    value: 1048576  # AKS takes it
labels:
  example.com/tuned: "yes"
taints:
  # keep others away
  - {key: example.com/gpu, effect: NoSchedule}
  - key: example.com/x
    value: y
    effect: NoExecute
remove:
  - vm.min_free_kbytes  # too much here
# The end.
"""

_word = st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=0, max_size=12)
_typed = st.one_of(_word, st.text(st.sampled_from(" #:-'\"{}[],&*!|>=<%@`0123456789.true"), max_size=10))
_prose = _typed.map(form_data.one_line)
_operator = st.one_of(st.sampled_from(["=", ">=", "<="]), _typed.filter(bool))
_key = st.one_of(st.sampled_from(["vm.swappiness", "a/b", "vm.x"]), _typed)


def _named(rows: st.SearchStrategy) -> st.SearchStrategy:
    return st.lists(rows, max_size=4, unique_by=lambda row: row.key).map(tuple)


sheets = st.builds(
    Sheet,
    extends=_typed,
    description=_prose,
    settings=_named(st.builds(SettingLine, _key, _operator, _typed, _prose)),
    labels=_named(st.builds(MarkLine, _key, _typed)),
    annotations=_named(st.builds(MarkLine, _key, st.one_of(_typed, st.text(st.sampled_from("ab\n\t #:"), max_size=8)))),
    taints=st.lists(st.builds(TaintLine, _typed, _typed, _typed), max_size=3).map(tuple),
    remove=st.lists(_typed, max_size=3).map(tuple),
)


@settings(max_examples=60)
@given(sheets)
def test_whatever_is_typed_comes_back_from_the_yaml(typed: Sheet) -> None:
    assert form_data.read(yaml_patch.write(typed).source).same_as(typed)


@settings(max_examples=60)
@given(sheets)
def test_whatever_is_typed_comes_back_when_it_is_written_into_a_text_with_comments(typed: Sheet) -> None:
    written = yaml_patch.write(typed, COMMENTED)

    assert form_data.read(written.source).same_as(typed)
    there, before = yaml_patch.comments(written.source), yaml_patch.comments(COMMENTED)
    assert sorted(there + list(written.lost)) == sorted(before), "each comment is there, or named as lost"


@settings(max_examples=60)
@given(sheets, sheets)
def test_any_sheet_becomes_any_other(first: Sheet, second: Sheet) -> None:
    source = yaml_patch.write(first).source

    assert form_data.read(yaml_patch.write(second, source).source).same_as(second)


@settings(max_examples=40)
@given(documents())
def test_a_sound_profile_means_the_same_in_both_views(document: schema.ProfileDocument) -> None:
    source = schema.render(document)

    assert yaml_patch.write(form_data.read(source), source).source == source
    assert schema.parse(yaml_patch.write(form_data.read(source)).source) == document


CLUSTER = """\
# What the cluster needs.
components:
  cilium:   # the network
    version: '1.20.0'
    values:
      # lists stay lists
      devices: [eth+,  mlx5_0]
      config: |
        a: b   # no comment

        c: d
  volcano:
"""
OBJECTS = """\
policies:
  - apiVersion: v1     # theirs
    kind: Namespace
    metadata: {name: team-a,   labels: {x: "y"}}
"""


@settings(max_examples=60)
@given(sheets)
def test_components_and_objects_stay_as_they_are_written_whatever_is_typed_into_the_form(typed: Sheet) -> None:
    for text in (CLUSTER + COMMENTED + OBJECTS, COMMENTED + CLUSTER + OBJECTS, CLUSTER + OBJECTS):
        written = yaml_patch.write(typed, text)

        assert form_data.read(written.source).same_as(typed)
        assert CLUSTER.removeprefix("# What the cluster needs.\n") in written.source
        assert OBJECTS in written.source
        there = yaml_patch.comments(written.source)
        assert sorted(there + list(written.lost)) == sorted(yaml_patch.comments(text))


def test_components_in_a_layout_of_one_line_mean_the_same_afterwards() -> None:
    source = "{settings: {vm.swappiness: 10}, components: {cilium: {values: {a: [1, x]}}}, policies: [ ]}"

    written = yaml_patch.write(Sheet(settings=(SettingLine("vm.swappiness", "=", "1"),)), source)

    assert form_data.read(written.source).kept == {
        "components": {"cilium": {"values": {"a": [1, "x"]}}},
        "policies": [],
    }
    assert form_data.read(written.source).settings == (SettingLine("vm.swappiness", "=", "1"),)


def test_reading_alone_changes_not_a_character() -> None:
    assert yaml_patch.write(form_data.read(COMMENTED), COMMENTED) == yaml_patch.Rewritten(COMMENTED)


def changed(**fields: object) -> yaml_patch.Rewritten:
    read = form_data.read(COMMENTED)
    return yaml_patch.write(
        Sheet(**{name: fields.get(name, getattr(read, name)) for name in form_data.PARTS}), COMMENTED
    )


def test_a_changed_value_keeps_every_comment_and_all_other_lines() -> None:
    read = form_data.read(COMMENTED)
    lines = (
        SettingLine("vm.swappiness", "=", "1"),
        SettingLine("vm.max_map_count", ">=", "300000", "Loaders map many files."),
    )

    written = changed(settings=(*lines, read.settings[2]))

    assert written.lost == ()
    assert written.source == COMMENTED.replace("10  # not", "1  # not").replace(">= 262144", ">= 300000").replace(
        '">= 300000"', "'>= 300000'"
    )


def test_an_added_setting_stands_behind_the_last_one() -> None:
    added = SettingLine("vm.min_free_kbytes", ">=", "65536", "receive buffers")

    written = changed(settings=(*form_data.read(COMMENTED).settings, added))

    before, after = COMMENTED.split("labels:")
    assert written.source == (
        before
        + "  vm.min_free_kbytes:\n    operator: '>='\n    value: 65536\n    why: receive buffers\nlabels:"
        + after
    )


def test_a_removed_setting_takes_only_the_comments_of_its_own_lines_and_they_are_named() -> None:
    written = changed(settings=form_data.read(COMMENTED).settings[1:])

    assert written.lost == ("# not 0",)
    assert "# Asked for by INC-218." in written.source
    assert "swappiness" not in written.source


def test_a_reason_is_added_to_a_bare_value() -> None:
    read = form_data.read(COMMENTED)

    written = changed(settings=(SettingLine("vm.swappiness", "=", "10", "because"), *read.settings[1:]))

    assert "  vm.swappiness:\n    value: 10\n    why: because  # not 0\n" in written.source
    assert written.lost == ()


def test_parts_that_are_not_there_yet_are_put_where_they_belong() -> None:
    source = "# mine\nsettings:\n  vm.swappiness: 10\nremove: []\n"
    read = form_data.read(source)

    written = yaml_patch.write(Sheet("base", "d", read.settings, (MarkLine("a", "b"),)), source)

    assert written.source == (
        "# mine\nextends: base\ndescription: d\nsettings:\n  vm.swappiness: 10\nlabels:\n  a: b\nremove: []\n"
    )


@pytest.mark.parametrize("source", ["{settings: {vm.swappiness: 10}}", "settings: {vm.swappiness: 10}  # c\n", ""])
def test_flow_style_is_written_as_a_block_when_it_changes(source: str) -> None:
    written = yaml_patch.write(
        Sheet(settings=(SettingLine("vm.swappiness", "=", "9"), SettingLine("b", "=", "1"))), source
    )

    assert written.lost == ()
    assert form_data.read(written.source).settings == (
        SettingLine("vm.swappiness", "=", "9"),
        SettingLine("b", "=", "1"),
    )


@pytest.mark.parametrize(
    ("source", "line", "path"),
    [
        ("- a\n", 1, ""),
        ("settings:\n  a:\n    b: c\n", 3, "settings.a.b"),
        ("unknown: 1\n", 1, "unknown"),
        ("settings: 5\n", 1, "settings"),
        ("labels:\n  a: {}\n", 2, "labels.a"),
        ("settings:\n  a: [[1]]\n", 2, "settings.a[0]"),
        ("taints:\n  - text\n", 2, "taints[0]"),
        ('extends: "a\\nb"\n', 1, "extends"),
        ("a: [\n", 1, ""),
    ],
)
def test_what_no_field_can_show_is_named_with_its_line(source: str, line: int, path: str) -> None:
    with pytest.raises(form_data.Unreadable) as refusal:
        form_data.read(source)

    assert (refusal.value.problems[0].line, refusal.value.problems[0].path) == (line, path)


def test_two_rows_of_one_name_are_refused_by_name() -> None:
    with pytest.raises(Invalid) as refusal:
        yaml_patch.write(Sheet(labels=(MarkLine("a", "1"), MarkLine("a", "2"))))

    assert list(refusal.value.fields) == ["labels.a"]


def test_what_looks_like_a_comment_inside_a_value_is_none() -> None:
    assert yaml_patch.comments("a: 'x # y'\nb: |\n  # z\nc: 1 # w\n# v\nd: p#q\n") == ["# w", "# v"]
