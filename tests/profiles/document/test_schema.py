"""The meaning of a sound document, which another layout of it does not change."""

from __future__ import annotations

import random

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from profiles.content.content import BadContent, Content, WantedSetting, build
from profiles.document import schema
from profiles.document.document import ProfileDocument
from tests.profiles.strategies import documents


def flat(text: str, parent: Content | None = None, origin: str = "draft") -> Content:
    return schema.flatten(schema.parse(text), parent, origin=origin).content


def values_of(content: Content) -> dict[str, str]:
    return {s.key: f"{s.operator} {s.value}" for s in content.settings}


# ── Forms ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("10", "= 10"),
        ("'10'", "= 10"),
        ("010", "= 10"),
        ("0x0a", "= 10"),
        ("'>= 10'", ">= 10"),
        ("'<=10'", "<= 10"),
        ("'=10'", "= 10"),
        ("{value: 10}", "= 10"),
        ("{value: '>= 10'}", ">= 10"),
        ("{operator: '<=', value: 10, why: because}", "<= 10"),
    ],
)
def test_a_setting_has_a_short_and_a_long_form(written, meant):
    assert values_of(flat(f"settings: {{vm.swappiness: {written}}}")) == {"vm.swappiness": meant}


@pytest.mark.parametrize(
    ("written", "meant"),
    [("536870912", "536870912"), ("512Mi", "536870912"), ("524288 Ki", "536870912"), ("1Gi", "1073741824")],
)
def test_bytes_may_have_a_binary_unit(written, meant):
    assert flat(f"settings: {{net.core.rmem_max: {written}}}").setting("net.core.rmem_max").value == meant


@pytest.mark.parametrize("written", ["4096 87380  268435456", "[4096, 87380, 256Mi]", '"4096\\t87380 268435456"'])
def test_a_list_of_numbers_has_one_canonical_form(written):
    assert (
        flat(f"settings: {{net.ipv4.tcp_rmem: {written}}}").setting("net.ipv4.tcp_rmem").value == "4096 87380 268435456"
    )


def test_keys_have_one_canonical_form():
    assert values_of(flat("settings: {vm/swappiness: 1, module.ib-umad: loaded}")) == {
        "vm.swappiness": "= 1",
        "module.ib_umad": "= loaded",
    }


def test_words_of_yaml_1_1_stay_words():
    content = flat("settings: {cmdline.intel_iommu: on, cmdline.iommu: off, module_parameter.zswap.enabled: Y}")

    assert {s.value for s in content.settings} == {"on", "off", "Y"}


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "settings:\n", "{}"])
def test_an_empty_document_is_a_document(text):
    assert flat(text).is_empty


def test_each_setting_carries_its_class_its_origin_and_its_reason():
    content = flat("settings: {vm.swappiness: {value: 10, why: 'keeps\n  buffers'}, hugepages-2Mi: 8}", origin="a r1")

    assert content.setting("vm.swappiness") == WantedSetting(
        "vm.swappiness", "=", "10", "live", "a r1", "keeps buffers"
    )
    assert content.setting("hugepages-2Mi").apply_class == "kubelet-restart"
    assert content.worst_class == "kubelet-restart"


# ── Warnings ──────────────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("text", "code", "path"),
    [
        ("settings: {net.core.rmem_max: 536870912}", "platform", "settings.net.core.rmem_max"),
        ("settings: {vm.overcommit_memory: 1}", "kubelet-owned", "settings.vm.overcommit_memory"),
        ("settings: {kernel.sysrq: 1}", "caution", "settings.kernel.sysrq"),
        ("settings: {vm.vfs_cache_pressure: 0}", "caution", "settings.vm.vfs_cache_pressure"),
        ("settings: {net.ipv4.ip_local_port_range: 20000 60000}", "caution", "settings.net.ipv4.ip_local_port_range"),
        (
            "settings: {net.netfilter.nf_conntrack_max: '>= 1048576'}",
            "caution",
            "settings.net.netfilter.nf_conntrack_max",
        ),
        ("settings: {net.core.default_qdisc: fq}", "caution", "settings.net.core.default_qdisc"),
        ("settings: {net.ipv4.tcp_congestion_control: mine}", "unusual", "settings.net.ipv4.tcp_congestion_control"),
        ("settings: {vm.max_map_count: 262144}", "raise-only", "settings.vm.max_map_count"),
        ("taints: [{key: a, effect: NoExecute}]", "evicts", "taints[0]"),
        (
            "settings: {vm.dirty_ratio: 5, vm.dirty_background_ratio: 9}",
            "without-effect",
            "settings.vm.dirty_background_ratio",
        ),
    ],
)
def test_what_is_permitted_but_risky_is_said(text, code, path):
    warnings = schema.flatten(schema.parse(text), None, origin="draft").warnings

    assert (code, path) in [(note.code, note.path) for note in warnings]


def test_a_harmless_profile_has_no_warnings():
    text = "settings: {vm.swappiness: 10, vm.max_map_count: '>= 262144'}\ntaints: [{key: a, effect: NoSchedule}]"

    assert schema.flatten(schema.parse(text), None, origin="draft").warnings == ()


@pytest.mark.parametrize(
    "label",
    [
        "team.example.com/tier",
        "plain",
        "node-restriction.kubernetes.io/trust",
        "x.node-restriction.kubernetes.io/t",
        "nvidia.com/gpu.deploy.driver",
        "nvidia.com/mig.config",
        "notkubernetes.io/x",
    ],
)
def test_labels_that_people_may_set_are_accepted(label):
    assert flat(f"labels: {{{label}: 'yes'}}").labels[0].key == label


# ── Layers ────────────────────────────────────────────────────────────────────────────────────────────────────────────
BASE = flat(
    "settings: {vm.swappiness: 10, vm.dirty_ratio: 40}\nlabels: {a: x, b: y}\n"
    "taints: [{key: t, value: v, effect: NoSchedule}]\nannotations: {n: m}",
    origin="base r3",
)


def test_what_is_not_said_is_inherited_with_its_origin_and_what_is_said_wins():
    content = flat("settings: {vm.swappiness: 1}\nlabels: {b: z}", BASE, "top r1")

    assert content.setting("vm.swappiness").origin == "top r1"
    assert content.setting("vm.dirty_ratio").origin == "base r3"
    assert {(mark.key, mark.value, mark.origin) for mark in content.labels} == {
        ("a", "x", "base r3"),
        ("b", "z", "top r1"),
    }
    assert [t.name for t in content.taints] == ["t:NoSchedule"]


def test_an_inherited_part_can_be_given_up():
    content = flat("remove: [vm.dirty_ratio, labels.a, annotations.n, 'taints.t:NoSchedule']", BASE, "top r1")

    assert values_of(content) == {"vm.swappiness": "= 10"}
    assert [mark.key for mark in content.labels] == ["b"]
    assert not content.taints
    assert not content.annotations


def test_a_coupled_key_needs_the_inherited_one_given_up_first():
    with pytest.raises(schema.InvalidProfile) as caught:
        flat("settings:\n  vm.dirty_bytes: 1Gi", BASE, "top r1")
    assert "name vm.dirty_ratio under remove" in str(caught.value)

    content = flat("settings: {vm.dirty_bytes: 1Gi}\nremove: [vm.dirty_ratio]", BASE, "top r1")
    assert content.setting("vm.dirty_bytes")
    assert not content.setting("vm.dirty_ratio")


def test_two_names_of_one_value_are_not_both_set():
    """The kernel has one size of the table: what is set last holds, and each original would be the other's value."""
    both = "settings: {net.netfilter.nf_conntrack_buckets: 262144, module_parameter.nf_conntrack.hashsize: 524288}"
    with pytest.raises(schema.InvalidProfile, match="names of one value"):
        flat(both, None, "top r1")


def test_setting_and_removing_the_same_key_is_refused():
    with pytest.raises(schema.InvalidProfile, match="both set and removed"):
        flat("settings: {vm.swappiness: 1}\nremove: [vm.swappiness]", BASE, "top r1")


def test_a_taint_is_replaced_by_key_and_effect():
    content = flat("taints: [{key: t, value: other, effect: NoSchedule}]", BASE, "top r1")

    assert [(t.name, t.value) for t in content.taints] == [("t:NoSchedule", "other")]


def compose(lower: ProfileDocument, upper: ProfileDocument) -> ProfileDocument:
    """Return the one document that means the same as `upper` over `lower`: the model for the law below."""

    def over(a, b):
        return tuple(sorted({**{item[:-1]: item for item in a}, **{item[:-1]: item for item in b}}.values()))

    settings = {wish.key: wish for wish in (*lower.settings, *upper.settings)}
    return ProfileDocument(
        settings=tuple(settings[key] for key in sorted(settings)),
        labels=over(lower.labels, upper.labels),
        annotations=over(lower.annotations, upper.annotations),
        taints=over(lower.taints, upper.taints),
    )


@given(documents(st.none()), documents(st.none()), documents(st.none()))
def test_flattening_is_associative(base, middle, top):
    def on(parent, document):
        return schema.flatten(document, parent, origin="x").content

    assert on(on(on(None, base), middle), top) == on(on(None, base), compose(middle, top))


# ── Text and digest ───────────────────────────────────────────────────────────────────────────────────────────────────
@given(documents())
def test_what_is_rendered_reads_back_the_same_and_renders_the_same(document):
    text = schema.render(document)

    assert schema.parse(text) == document
    assert schema.render(schema.parse(text)) == text


class Quoting(yaml.SafeDumper):
    """Text in quotes: PyYAML leaves `0E0` bare, which YAML 1.2 reads as a number, and so do we."""


Quoting.add_representer(str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"'))


@given(documents(st.none()), st.randoms(use_true_random=False))
def test_the_order_of_keys_changes_nothing(document, chance: random.Random):
    def shuffled(node):
        if not isinstance(node, dict):
            return node
        items = [(key, shuffled(value)) for key, value in node.items()]
        chance.shuffle(items)
        return dict(items)

    text = schema.render(document)
    other = yaml.dump(shuffled(yaml.safe_load(text) or {}), Dumper=Quoting, sort_keys=False, allow_unicode=True)

    assert schema.parse(other) == schema.parse(text)
    assert schema.digest(flat(other)) == schema.digest(flat(text))


@given(documents(st.none()))
def test_content_survives_its_own_json(document):
    content = schema.flatten(document, None, origin="a r1").content

    assert Content.from_json(content.to_json()) == content


def test_the_digest_covers_meaning_and_not_where_it_comes_from_or_why():
    content = flat("settings: {vm.swappiness: {value: 10, why: a}}", origin="a r1")
    other = flat("description: d\nsettings: {vm/swappiness: '= 010'}", origin="b r7")

    assert schema.digest(content) == schema.digest(other)
    assert schema.digest(content).startswith("sha256:")
    assert len(schema.digest(content)) == 71


@pytest.mark.parametrize(
    "text",
    [
        "settings: {vm.swappiness: 11}",
        "settings: {vm.swappiness: '>= 10'}",
        "settings: {vm.dirty_ratio: 10}",
        "labels: {vm.swappiness: '10'}",
        "annotations: {vm.swappiness: '10'}",
        "taints: [{key: a, effect: NoSchedule}]",
        "",
    ],
)
def test_another_meaning_has_another_digest(text):
    assert schema.digest(flat(text)) != schema.digest(flat("settings: {vm.swappiness: 10}"))


@pytest.mark.parametrize("other", ["{key: a, value: w, effect: NoSchedule}", "{key: a, value: v, effect: NoExecute}"])
def test_every_part_of_a_taint_is_meant(other):
    taint = flat("taints: [{key: a, value: v, effect: NoSchedule}]")

    assert schema.digest(flat(f"taints: [{other}]")) != schema.digest(taint)


def test_the_digest_of_a_known_content_never_changes():
    """Approved plans name it: another value here needs another serialization number."""
    content = flat("settings: {vm.swappiness: 10}\nlabels: {a: b}")

    assert schema.digest(content) == KNOWN


KNOWN = "sha256:4fa03fa556b7c5e4292480b55f1cab0654d4db51ccf10177787f3df8e5906ce9"


def test_a_difference_names_part_key_before_and_after():
    a = flat("settings: {vm.swappiness: 10, vm.dirty_ratio: 40}\nlabels: {a: x}")
    b = flat(
        "settings: {vm.swappiness: '>= 10', cmdline.iommu: pt}\nlabels: {a: y}\ntaints: [{key: t, effect: NoSchedule}]"
    )

    assert [(d.part, d.key, d.before, d.after, d.change, d.apply_class) for d in schema.diff(a, b)] == [
        ("settings", "cmdline.iommu", None, "pt", "added", "reboot"),
        ("settings", "vm.dirty_ratio", "40", None, "removed", "live"),
        ("settings", "vm.swappiness", "10", ">= 10", "changed", "live"),
        ("labels", "a", "x", "y", "changed", ""),
        ("taints", "t:NoSchedule", None, "", "added", ""),
    ]
    assert schema.diff(a, a) == []


def test_damaged_content_is_named_as_such():
    for rubbish in ({"settings": [{}]}, {"labels": 3}, {"settings": 3}, {"taints": [None]}):
        with pytest.raises(BadContent):
            Content.from_json(rubbish)


def test_parts_are_ordered_however_they_are_given():
    settings = [WantedSetting(key, "=", "1", "live", "x") for key in ("vm.swappiness", "fs.nr_open", "vm.dirty_ratio")]

    assert [s.key for s in build(settings=settings, labels=[], annotations=[], taints=[]).settings] == sorted(
        s.key for s in settings
    )
