"""Exported files are imported again, and any text at all is a draft or a refusal that names the field."""

from __future__ import annotations

import configparser
import json
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from common import yaml
from common.errors import Invalid
from profiles import exports
from profiles.content.content import Content
from profiles.document import layering
from profiles.document.document import DocumentSetting, InvalidProfile, ProfileDocument
from profiles.document.schema import parse
from profiles.imports import ini
from profiles.imports.draft import MAX_NOT_TAKEN
from profiles.imports.formats import FORMATS, PROFILE, recognize, translate
from tests.profiles.exports.test_exports import contents, written

FOREIGN = [format for format in FORMATS.values() if format.read]
EXPORTED = [format for format in FOREIGN if format.key in exports.FORMATS]


def is_sound(wanted: tuple[DocumentSetting, ...]) -> bool:
    try:
        layering.flatten(ProfileDocument(settings=wanted), None, origin="x")
    except InvalidProfile:
        return False
    return True


def expected(content: Content, export: exports.Export) -> tuple[DocumentSetting, ...]:
    missing = {entry.key for entry in export.missing}
    return tuple(
        DocumentSetting(wanted.key, wanted.operator, wanted.value)
        for wanted in content.settings
        if wanted.key not in missing
    )


@pytest.mark.parametrize("format", EXPORTED, ids=lambda format: format.key)
@settings(max_examples=60)
@given(content=contents())
def test_what_a_file_of_ours_holds_is_imported_again(format: Any, content: Content) -> None:
    names = {wanted.key for wanted in content.settings}
    if format.key == "nodewright" and names & {"cmdline.hugepages", "cmdline.hugepagesz"}:
        return  # pages of the node are written with the very same words there
    export = written(content, format.key)
    wanted = expected(content, export)
    if not wanted:
        with pytest.raises(Invalid) as refusal:
            translate(export.text, format)
        assert "source" in refusal.value.fields
        return

    draft = translate(export.text, format)

    assert draft
    assert set(draft.document.settings) <= set(wanted), "nothing is made up"
    if is_sound(wanted):
        assert draft.document.settings == wanted
        assert recognize(export.text) is format
    assert parse(draft.source) == draft.document
    layering.flatten(draft.document, None, origin="x")


@pytest.mark.parametrize("format", EXPORTED, ids=lambda format: format.key)
def test_every_format_that_is_imported_and_exported_is_the_same_one(format: Any) -> None:
    assert exports.FORMATS[format.key].title == format.title


# ── Rubbish ───────────────────────────────────────────────────────────────────────────────────────────────────────────
_WORDS = """[main] [sysctl] [vm] [disk] [bootloader] [modules] [sysfs] [cpu] type=disk enabled=0 devices=sd*
readahead=4096 readahead=1e9 governor=performance vm.swappiness vm/swappiness=010 -vm.swappiness = == > < >5 + - # ;
${f:x} hugepagesz=2M hugepages=9 hugepages= cmdline=+ cmdline_x=+iommu=pt include=x /sys/block/sd*/queue/nr_requests=8
kind: apiVersion: spec: metadata: data: packages: tuning: configMap: sysctl.conf: grub.conf: | profile: - { } [ ] "
tuned.openshift.io/v1 Tuned PerformanceProfile performance.openshift.io/v2 NodeWright nodewright.nvidia.com/v1alpha1
hugepages pages size 1G count: node: isolated: cpu: 0-3 true null &a *a !!python 1e999 é 9999999999999999"""
_PIECES = st.sampled_from([*_WORDS.split(), "\t", "\n", "\n\n", "\r", " ", "\ud800", "\x00", "\x1c", "\u2028"])
rubbish = st.text() | st.lists(_PIECES, max_size=40).map(" ".join) | st.lists(_PIECES, max_size=40).map("".join)
_SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.sampled_from("01") | _PIECES
)
_FIELDS = """profile data name packages tuning configMap sysctl.conf grub.conf ulimit.conf hugepages pages size count
node cpu isolated reserved additionalKernelArgs numa defaultHugepagesSize image recommend"""
trees = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(_FIELDS.split()), inner, max_size=4),
    max_leaves=12,
)


def only_invalid(text: str, format: Any) -> None:
    draft, messages = None, list[str]()
    try:
        draft = translate(text, format)
    except Invalid as refusal:
        messages = refusal.fields.get("source", [])
    if not draft:
        assert messages, "names the field"
        assert all(message.isprintable() for message in messages)
        return
    assert draft.document.settings
    assert parse(draft.source) == draft.document
    for entry in draft.not_taken:
        assert entry.reason
        assert (entry.text + entry.reason).isprintable()
        assert 1 <= entry.line <= text.count("\n") + 1


@pytest.mark.parametrize("format", FOREIGN, ids=lambda format: format.key)
@settings(max_examples=150)
@given(text=rubbish)
@example("")
@example("a: &a [*a]")
@example("[" * 5000)
@example("x=1\n" * (MAX_NOT_TAKEN + 1))
@example("vm.swappiness=" + "9" * 5000)
@example("kernel.pid_max=>" + "9" * 5000 + "\n[disk]\nreadahead=" + "9" * 5000 + " s\n")
@example("é" * yaml.MAX_BYTES)
@example("[sysctl]\n" + "a=1\n" * 60_000)
@example("[sysctl]\na=1\n" + " b\n" * 80_000)
@example("[modules]\n" + "a" * 100_000 + "=" + "b=1 " * 30_000)
@example("[disk]\ndevices=" + "sd*," * 30_000 + "\n" + "readahead=1\n" * 10_000)
@example("[bootloader]\ncmdline=" + "hugepagesz=2M hugepages=1 " * 9_000)
@example("-" + "a" * 200_000 + "=1\n")
@example("[" * 100_000 + "]" * 100_000)
def test_any_text_is_a_draft_or_a_refusal_of_the_text(format: Any, text: str) -> None:
    only_invalid(text, format)
    assert recognize(text).key in FORMATS


@pytest.mark.parametrize("format", [f for f in FOREIGN if f.kinds], ids=lambda format: format.key)
@settings(max_examples=150)
@given(spec=trees)
def test_any_object_of_the_kind_is_a_draft_or_a_refusal(format: Any, spec: object) -> None:
    group = {"Tuned": "tuned.openshift.io/v1", "PerformanceProfile": "performance.openshift.io/v2"}
    api_version = group.get(format.kinds[0], "nodewright.nvidia.com/v1alpha1")
    only_invalid(json.dumps({"apiVersion": api_version, "kind": format.kinds[0], "spec": spec}), format)


_KEYS = st.sampled_from(
    ["vm.swappiness", "vm/swappiness", "vm.dirty_ratio", "vm.dirty_bytes", "vm.x", "a.*", "-fs.file-max"]
)
_LINES = st.builds(
    "{}{}{}".format, _KEYS, st.sampled_from([" = ", "=", " "]), st.sampled_from(["1", "0x1", "", "9999", "a b"])
)


@settings(max_examples=200)
@given(st.lists(_LINES | st.sampled_from(["# c", "; c", ""]), min_size=1, max_size=12))
def test_no_line_is_lost(lines: list[str]) -> None:
    try:
        draft = translate("kernel.pid_max=65536\n" + "\n".join(lines), FORMATS["sysctl.d"])
    except Invalid:
        pytest.fail("one line of it is sound")
    assert draft
    values = {wish.key: wish.value for wish in draft.document.settings}
    named = {entry.line for entry in draft.not_taken}
    for number, line in enumerate(lines, 2):
        key, _, value = (part.strip() for part in line.partition("="))
        is_there = values.get(key.lstrip("-").replace("/", ".")) == value
        assert is_there or number in named or line[:1] in ("#", ";", ""), line


_NAMES = st.text("ab_c.", min_size=1, max_size=4)
_INI_LINES = st.one_of(
    st.builds("[{}]".format, _NAMES),
    st.builds("{}{}{}{}{}".format, st.sampled_from(["", " ", "  "]), _NAMES, st.sampled_from(["=", " = ", "= "]),
              st.text("xy =#;[]", max_size=8), st.sampled_from(["", " # c", "#c", "\t#"])),
    st.sampled_from(["", "   ", "# c", "  ; c", "  more", "    # c", "\t x"]),
)  # fmt: skip


@settings(max_examples=300)
@given(st.lists(_INI_LINES, max_size=12))
def test_ini_files_are_read_as_tuned_reads_them(lines: list[str]) -> None:
    text = "\n".join(lines)
    oracle = configparser.ConfigParser(
        delimiters=("=",), inline_comment_prefixes=("#",), strict=False, interpolation=None
    )
    oracle.optionxform = str  # type: ignore[assignment, method-assign]
    parsed = ini.parse(text)
    try:
        oracle.read_string(text)
    except configparser.Error:
        return  # TuneD refuses the whole file; here its bad lines are named

    def squeezed(value: str) -> list[str]:
        return [line.strip() for line in value.split("\n") if line.strip()]

    assert not parsed.broken
    assert {section.name: {o.name: squeezed(o.value) for o in section.options} for section in parsed.sections} == {
        name: {option: squeezed(value) for option, value in oracle[name].items()} for name in oracle.sections()
    }
    for section in parsed.sections:
        for option in section.options:
            assert option.name in lines[option.line - 1]


# ── Recognition ───────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("text", "key"),
    [
        ("vm.swappiness = 10\n", "sysctl.d"),
        ("# c\n-net.ipv4.conf.*.rp_filter = 1\n-net.ipv4.conf.all\nvm/swappiness=1\n", "sysctl.d"),
        ("[main]\nsummary=x\n", "tuned"),
        ("kind: Tuned\n", "openshift-tuned"),
        ("kind: PerformanceProfile\n", "performance-profile"),
        ("kind: Skyhook\n", "nodewright"),
        ("settings: {vm.swappiness: 10}\n", PROFILE),
        ("settings:\n  vm.swappiness: [\n", PROFILE),
        ("", PROFILE),
        ("- 1\n", PROFILE),
        ("-a.b\n", PROFILE),
        ("kind: [Tuned]\n", PROFILE),
    ],
)
def test_a_text_is_recognized(text: str, key: str) -> None:
    assert recognize(text).key == key


@settings(max_examples=30)
@given(contents())
def test_profiles_of_ours_are_not_taken_for_another_tools(content: Content) -> None:
    assert recognize(written(content, "profile").text).key == PROFILE
