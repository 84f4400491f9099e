"""Rubbish is refused with the field named; any text raises InvalidProfile at most."""

from __future__ import annotations

import json
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract import key_lists, keys
from profiles.catalog import known_settings
from profiles.document import schema
from profiles.document.schema import InvalidProfile


def refusal(text: str | bytes) -> InvalidProfile:
    with pytest.raises(InvalidProfile) as caught:
        schema.flatten(schema.parse(text), None, origin="draft")
    return caught.value


REFUSED = {
    "denied": ("settings:\n  kernel.core_pattern: core", "settings.kernel.core_pattern (line 2)", "names a program"),
    "denied value": (
        "settings:\n  kernel.yama.ptrace_scope: 3",
        "settings.kernel.yama.ptrace_scope (line 2)",
        "reboot",
    ),
    "denied family": ("settings:\n  net.bridge.x: 1", "settings.net.bridge.x (line 2)", "network plugin"),
    "one-way": ("settings:\n  kernel.modules_disabled: 1", "settings.kernel.modules_disabled (line 2)", "GPU"),
    "denied argument": ("settings:\n  cmdline.mitigations: off", "settings.cmdline.mitigations (line 2)", "security"),
    "kubelet's": ("settings:\n  vm.overcommit_memory: 0", "settings.vm.overcommit_memory (line 2)", "insists on 1"),
    "kubelet's, or more": ("settings:\n  kernel.panic: '>= 10'", "settings.kernel.panic (line 2)", "with ="),
    "the plugin's": (
        "settings:\n  net.ipv4.conf.all.rp_filter: 0",
        "settings.net.ipv4.conf.all.rp_filter (line 2)",
        "owns",
    ),
    "forwarding": (
        "settings:\n  net.ipv4.conf.eth0.forwarding: 1",
        "settings.net.ipv4.conf.eth0.forwarding (line 2)",
        "own",
    ),
    "only observed": (
        "settings:\n  kubelet.reserved: cpu=0",
        "settings.kubelet.reserved (line 2)",
        "observed",
    ),
    "unknown": ("settings:\n  vm.swapiness: 1", "settings.vm.swapiness (line 2)", "did you mean vm.swappiness?"),
    "unknown kind": ("settings:\n  swappiness: 1", "settings.swappiness (line 2)", "did you mean vm.swappiness?"),
    "unknown module": (
        "settings:\n  module.rootkit: loaded",
        "settings.module.rootkit (line 2)",
        "not a known setting",
    ),
    "above": ("settings:\n\n  vm.swappiness: 201", "settings.vm.swappiness (line 3)", "0 to 200"),
    "below": ("settings:\n  vm.min_free_kbytes: 1023", "settings.vm.min_free_kbytes (line 2)", "1024 to"),
    "no choice": (
        "settings:\n  transparent_hugepage.enabled: maybe",
        "settings.transparent_hugepage.enabled (line 2)",
        "madvise",
    ),
    "unit of pages": ("settings:\n  hugepages-2Mi: 16Gi", "settings.hugepages-2Mi (line 2)", "counted in pages"),
    "unit of KiB": ("settings:\n  vm.min_free_kbytes: 64Mi", "settings.vm.min_free_kbytes (line 2)", "write 65536"),
    "decimal unit": ("settings:\n  net.core.rmem_max: 512MB", "settings.net.core.rmem_max (line 2)", "Ki, Mi, Gi"),
    "letter O": (
        "settings:\n  vm.max_map_count: 1O000",
        "settings.vm.max_map_count (line 2)",
        "wr|whole number|without",
    ),
    "fraction": ("settings:\n  vm.swappiness: 0.5", "settings.vm.swappiness (line 2)", "whole number"),
    "exponent": ("settings:\n  vm.max_map_count: 1e6", "settings.vm.max_map_count (line 2)", "whole number"),
    "boolean": (
        "settings:\n  kernel.numa_balancing: true",
        "settings.kernel.numa_balancing (line 2)",
        "true and false",
    ),
    "nothing": ("settings:\n  vm.swappiness:", "settings.vm.swappiness (line 2)", "no value"),
    "list for one": ("settings:\n  vm.swappiness: [1, 2]", "settings.vm.swappiness (line 2)", "not a list"),
    "two of three": ("settings:\n  net.ipv4.tcp_rmem: 1 2", "settings.net.ipv4.tcp_rmem (line 2)", "3 numbers"),
    "falling": ("settings:\n  net.ipv4.tcp_rmem: 3 2 1", "settings.net.ipv4.tcp_rmem (line 2)", "not fall"),
    "list of lists": (
        "settings:\n  net.ipv4.tcp_rmem: [[1], 2, 3]",
        "settings.net.ipv4.tcp_rmem (line 2)",
        "3 whole numbers",
    ),
    "newline in a value": (
        'settings:\n  kernel.pid_max: "4194304\\n5"',
        "settings.kernel.pid_max (line 2)",
        "line break",
    ),
    "newline in a word": ('settings:\n  cmdline.pci: "a\\nb"', "settings.cmdline.pci (line 2)", "line break"),
    "shell in a word": ("settings:\n  cmdline.pci: $(reboot)", "settings.cmdline.pci (line 2)", "value"),
    "newline in a key": ('settings:\n  "vm.swappiness\\n": 1', "settings.vm.swappiness\\n (line 2)", "contains"),
    "slash in a key": ("settings:\n  vm.x/swappiness: 1", "settings.vm.x/swappiness (line 2)", "contains '/'"),
    "dots in a key": ("settings:\n  vm..swappiness: 1", "settings.vm..swappiness (line 2)", "empty part"),
    "path in a key": ("settings:\n  vm/../../etc/shadow: 1", "settings.vm/../../etc/shadow (line 2)", "contains"),
    "NUL in a key": ('settings:\n  "vm.\\0": 1', "settings.vm.\\x00 (line 2)", "contains"),
    "operator": (
        "settings:\n  vm.swappiness: {value: 1, operator: '>'}",
        "settings.vm.swappiness.operator (line 2)",
        ">=",
    ),
    "operator twice": (
        "settings:\n  vm.swappiness: {value: '>= 1', operator: '='}",
        "settings.vm.swappiness.operator (line 2)",
        "twice",
    ),
    "order of words": (
        "settings:\n  transparent_hugepage.enabled: '>= never'",
        "settings.transparent_hugepage.enabled (line 2)",
        "no order",
    ),
    "stray field": (
        "settings:\n  vm.swappiness: {value: 1, because: x}",
        "settings.vm.swappiness.because (line 2)",
        "not known",
    ),
    "same key twice": (
        "settings:\n  vm.swappiness: 1\n  vm/swappiness: 2",
        "settings.vm/swappiness (line 3)",
        "same key",
    ),
    "coupled": (
        "settings:\n  vm.dirty_ratio: 10\n  vm.dirty_bytes: 1Gi",
        "settings.vm.dirty_bytes (line 3)",
        "vm.dirty_ratio",
    ),
    "thresholds": (
        "settings:\n  net.ipv4.neigh.default.gc_thresh1: 9\n  net.ipv4.neigh.default.gc_thresh2: 8",
        "settings.net.ipv4.neigh.default.gc_thresh1 (line 2)",
        "above",
    ),
    "pages twice": (
        "settings:\n  hugepages-2Mi: 8\n  hugepages-2Mi.node0: 4",
        "settings.hugepages-2Mi.node0 (line 3)",
        "hugepages-2Mi",
    ),
    "reserved label": ("labels: {kubernetes.io/role: gpu}", "labels.kubernetes.io/role (line 1)", "reserved"),
    "reserved subdomain": ("labels: {a.k8s.io/role: gpu}", "labels.a.k8s.io/role (line 1)", "reserved"),
    "discovered label": (
        "labels: {feature.node.kubernetes.io/x: a}",
        "labels.feature.node.kubernetes.io/x (line 1)",
        "discovery",
    ),
    "operator's label": (
        "labels: {nvidia.com/gpu.product: x}",
        "labels.nvidia.com/gpu.product (line 1)",
        "GPU Operator",
    ),
    "our annotation": ("annotations: {setpoint.dev/x: a}", "annotations.setpoint.dev/x (line 1)", "Setpoint"),
    "number as label": ("labels: {a: 1}", "labels.a (line 1)", "quotes"),
    "long label": (f"labels: {{a: {'x' * 64}}}", "labels.a (line 1)", "63"),
    "label's name": ("labels: {-a: b}", "labels.-a (line 1)", "letter or digit"),
    "huge annotation": (f"annotations: {{a: {'x' * 5000}}}", "annotations.a (line 1)", "4096"),
    "taint's effect": ("taints:\n- {key: a, effect: Never}", "taints[0] (line 2)", "NoSchedule"),
    "taint's field": ("taints:\n- {key: a, effect: NoSchedule, when: now}", "taints[0] (line 2)", "not a part"),
    "taint of another": (
        "taints:\n- {key: node.kubernetes.io/x, effect: NoSchedule}",
        "taints[0] (line 2)",
        "reserved",
    ),
    "taint twice": ("taints:\n- &a {key: a, effect: NoSchedule}", " (line 2)", "anchors"),
    "taint no map": ("taints: [1]", "taints[0] (line 1)", "key, value and effect"),
    "settings no map": ("settings: [1]", "settings (line 1)", "mapping"),
    "no map": ("- 1", "profile (line 1)", "mapping"),
    "stray part": ("setings: {}", "setings (line 1)", "not a part"),
    "extends": ("extends: {a: b}", "extends (line 1)", "gpu-baseline r3"),
    "extends a path": ("extends: ../x", "extends (line 1)", "gpu-baseline r3"),
    "removing what is not there": ("remove:\n- vm.swappiness", "remove.vm.swappiness (line 2)", "not inherited"),
    "removing rubbish": ("remove:\n- a/b", "remove[0] (line 2)", "contains"),
    "key twice": ("settings:\n  vm.swappiness: 1\n  vm.swappiness: 2", "settings (line 3)", "twice"),
    "tag": ("settings: !!python/object:os.system {}", "(line 1)", "tag"),
    "bomb": ("a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]", "profile (line 1)", "anchors"),
    "deep": ("settings: " + "[" * 200 + "]" * 200, "profile (line 1)", "deeper"),
    "open bracket": ("settings: {", "profile (line 1)", "not closed"),
    "quote": ('settings:\n  vm.swappiness: "1\n', "profile (line 2)", "a quote is not closed"),
    "two colons": ("settings:\n  vm.swappiness: 1: 2", "profile (line 2)", "one ': ' too many"),
    "no colon": ("settings:\n  vm.swappiness 1\n  vm.dirty_ratio: 5", "profile (line 3)", "missing|too many"),
    "indentation": ("settings:\n  vm.swappiness: 1\n vm.dirty_ratio: 5", "profile (line 3)", "indented differently"),
    "comma": ("taints:\n- {key: a effect: NoSchedule}", "profile (line 2)", "too many|comma"),
    "two documents": ("a: b\n---\nc: d", "profile (line 2)", "one document"),
    "tab": ("settings:\n\tvm.swappiness: 1", "profile (line 2)", "a tab cannot indent"),
}


@pytest.mark.parametrize(("text", "field", "says"), REFUSED.values(), ids=REFUSED)
def test_it_is_refused_and_the_field_named_with_its_line(text, field, says):
    error = refusal(text)

    assert field in error.fields or any(name.endswith(field) for name in error.fields), error.fields
    assert any(word in " ".join(map(" ".join, error.fields.values())) for word in says.split("|")), error.fields


def test_every_denied_key_is_refused_with_its_reason():
    for key, reason in key_lists.DENIED.items():
        error = refusal(f"settings:\n  {key}: 1")
        assert reason in str(error), key


def test_every_denied_value_is_refused_with_its_reason():
    for (key, value), reason in key_lists.DENIED_VALUES.items():
        error = refusal(f"settings:\n  {key}: '{value}'")
        assert reason in str(error), key


def test_all_problems_are_named_at_once_in_the_order_of_their_lines():
    error = refusal("settings:\n  vm.swappiness: 999\n  vm.nope: 1\nlabels: {a: 1}\n")

    assert [problem.line for problem in error.problems] == [2, 3, 4]
    assert "(and 2 more)" in str(error)


@pytest.mark.parametrize("text", [b"\x00\x01\x02", b"\xff\xfe\x00s", "\ud800", "a: \ud800", b"%PDF-1.7\n\xe2\xe3"])
def test_binary_is_refused(text):
    refusal(text)


def test_a_megabyte_is_refused_before_it_is_parsed():
    assert "bytes" in str(refusal("settings: {" + "[" * 1_000_000))


def test_more_settings_than_a_node_takes_are_refused():
    lines = [f"  hugepages-2Mi.node{n}: 1" for n in range(300)]

    assert "at most 256" in str(refusal("settings:\n" + "\n".join(lines)))


# ── Any text ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def judge_refusal(error: InvalidProfile) -> None:
    assert error.fields
    assert all(problem.line >= 1 for problem in error.problems)
    shown = f"{error} {error.fields}"
    assert "\x00" not in shown
    shown.encode()  # no half surrogate reaches an answer or a database


def outcome(text: str | bytes) -> None:
    """Either it is refused with a field and a line, or what comes out could be stored and published."""
    try:
        content = schema.flatten(schema.parse(text), None, origin="draft").content
    except InvalidProfile as error:
        judge_refusal(error)
        return
    assert schema.Content.from_json(content.to_json()) == content
    for setting in content.settings:
        assert keys.is_allowed(setting.key)
        assert keys.denied_reason(setting.key, setting.value) is None
        assert "\n" not in setting.value


@given(st.text(max_size=200) | st.binary(max_size=200))
def test_no_text_raises_anything_else(text):
    outcome(text)


_YAML = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
_KEYS = st.sampled_from([info.key for info in known_settings.all()]) | st.text(string.printable, max_size=24)


@given(
    settings=st.dictionaries(_KEYS, _YAML, max_size=4),
    rest=st.dictionaries(
        st.sampled_from(["extends", "description", "labels", "annotations", "taints", "remove", "zzz"]),
        _YAML,
        max_size=3,
    ),
)
def test_no_structure_raises_anything_else(settings, rest):
    outcome(json.dumps({"settings": settings, **rest}))  # JSON is YAML


@given(key=_KEYS, value=_YAML, operator=_YAML)
def test_no_long_form_raises_anything_else(key, value, operator):
    outcome(json.dumps({"settings": {key: {"value": value, "operator": operator, "why": value}}}))
