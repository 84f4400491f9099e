"""Every format, read back: what is in the file is what the revision wants, and what is not is named."""

from __future__ import annotations

import configparser
import json
import re
import urllib.parse
from collections.abc import Iterable
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from contract import isolation, keys
from contract.keys import KeyKind
from profiles import exports
from profiles.catalog import tuned_words
from profiles.catalog.host_paths import PAGE_SIZES
from profiles.content.content import Content, WantedSetting, build
from profiles.document import schema
from profiles.exports.parts import argument, sysfs_path
from profiles.services import library
from tests.profiles.strategies import SETTABLE, documents, wishes

Pairs = dict[str, tuple[str, str]]
"""key → (operator, value)"""


def written(content: Content, to: str, is_fixed: bool = False) -> exports.Export:
    return exports.export(content, to, name="gpu-base", revision="gpu-base r1", digest="sha256:00", is_fixed=is_fixed)


@st.composite
def contents(draw: Any) -> Content:
    """Settings of every kind, and marks."""
    document = draw(documents(st.none()))
    wanted = {wish.key: wish for wish in draw(st.lists(wishes(SETTABLE), max_size=12))}
    lines = [
        WantedSetting(wish.key, wish.operator, wish.value, str(keys.apply_class(wish.key)), "x r1")
        for wish in wanted.values()
    ]
    flat = schema.flatten(document, None, origin="x r1").content
    return build(settings=lines, labels=list(flat.labels), annotations=list(flat.annotations), taints=list(flat.taints))


def of(content: Content, *kinds: KeyKind) -> Iterable[WantedSetting]:
    return (wanted for wanted in content.settings if keys.kind_of(wanted.key) in kinds)


CLUSTER = schema.flatten(
    schema.parse(
        """
components: {cilium: {version: 1.20.0, presets: [a], values: {x: [1]}, why: because}, volcano: {}}
policies: [{apiVersion: v1, kind: Namespace, metadata: {name: team-a}}]
settings: {vm.swappiness: 10}
"""
    ),
    None,
    origin="x r1",
).content


# ── Readers of each format ────────────────────────────────────────────────────────────────────────────────────────────
def read_sysctl_d(text: str) -> Pairs:
    lines = [line.strip() for line in text.splitlines() if line.strip() and line.strip()[0] not in "#;"]
    return {key.strip(): ("=", value.strip()) for key, _, value in (line.partition("=") for line in lines)}


def read_ini(text: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, delimiters=("=",), strict=True)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read_string(text)
    return parser


def signed(value: str) -> tuple[str, str]:
    return ({">": ">=", "<": "<="}[value[0]], value[1:]) if value[:1] in "<>" else ("=", value)


def by_path(content: Content) -> dict[str, WantedSetting]:
    return {path: wanted for wanted in content.settings if (path := sysfs_path(wanted))}


def read_tuned(text: str, content: Content) -> Pairs:
    ini, out = read_ini(text), {}
    for section in ini.sections():
        for name, value in ini[section].items():
            if section == "sysctl":
                out[name] = signed(value)
            elif section == "vm":
                out["transparent_hugepage." + ("defrag" if "defrag" in name else "enabled")] = ("=", value)
            elif section == "cpu":
                out["cpu.scaling_governor" if name == "governor" else "cpu.resume_latency_us"] = ("=", value)
            elif section == "sysfs":
                out[by_path(content)[name].key] = ("=", value)
            elif section == "modules":
                first, _, rest = value.partition(",")
                if first == "+r":
                    out[f"module.{name}"] = ("=", "loaded")
                for option in (rest if first == "+r" else value).split():
                    parameter, _, set_to = option.partition("=")
                    out[f"module_parameter.{name}.{parameter}"] = ("=", set_to)
            elif section.startswith("disk_") and name == "readahead":
                out[f"block.{section.removeprefix('disk_')}.read_ahead_kb"] = signed(value)
            elif section == "bootloader" and value in tuned_words.FLAGS:
                cpus = ini["variables"][tuned_words.VARIABLE]
                out[isolation.KEY] = ("=", ",".join([*tuned_words.FLAGS[value], cpus]))
            elif section == "bootloader":
                out |= read_arguments(value.removeprefix("+").split(), content)
    return out


def read_arguments(words: list[str], content: Content) -> Pairs:
    """Pages of a size come first, in pairs, where the format has them as arguments at all."""
    spelled = {argument(wanted): wanted for wanted in of(content, KeyKind.CMDLINE)}
    sizes = {size: key for key, (_, size) in PAGE_SIZES.items()}
    out: Pairs = {}
    while words:
        word = words.pop(0)
        name, _, value = word.partition("=")
        is_pair = name == "hugepagesz" and bool(words) and words[0].startswith("hugepages=")
        if is_pair and not (word in spelled and words[0] in spelled):
            out[sizes[value]] = ("=", words.pop(0).partition("=")[2])
        else:
            out[spelled[word].key] = ("=", spelled[word].value)
    return out


def read_machineconfig(text: str, content: Content) -> Pairs:
    spec = yaml.safe_load(text)["spec"]
    out = read_arguments(list(spec.get("kernelArguments", [])), content)
    for file in spec["config"].get("storage", {}).get("files", []):
        body = urllib.parse.unquote(file["contents"]["source"].removeprefix("data:,"))
        for line in body.splitlines() if "sysctl.d" not in file["path"] else ():
            words = line.split()
            if "modules-load.d" in file["path"]:
                out[f"module.{line}"] = ("=", "loaded")
            elif "modprobe.d" in file["path"]:
                parameter, _, value = words[2].partition("=")
                out[f"module_parameter.{words[1]}.{parameter}"] = ("=", value)
            else:
                out[by_path(content)[words[1]].key] = ("=", words[6])
        if "sysctl.d" in file["path"]:
            out |= read_sysctl_d(body)
    return out


def read_ansible(text: str, content: Content) -> Pairs:
    out: Pairs = {}
    for task in yaml.safe_load(text)[0]["tasks"]:
        if put := task.get("ansible.posix.sysctl"):
            assert isinstance(put["value"], str), "Ansible would render 0x10 and 010 otherwise"
            compared = re.search(r" ([<>]) ", task.get("when", ""))
            out[put["name"]] = ({"<": ">=", ">": "<="}[compared[1]] if compared else "=", put["value"])
        elif load := task.get("community.general.modprobe"):
            out[f"module.{load['name']}"] = ("=", "loaded")
        elif line := task.get("ansible.builtin.lineinfile"):
            _, module, option = line["line"].split()
            parameter, _, value = option.partition("=")
            out[f"module_parameter.{module}.{parameter}"] = ("=", value)
        elif (copy := task.get("ansible.builtin.copy")) and copy["dest"].startswith("/usr/local/sbin/"):
            puts = re.findall(r"(?m)^(?:put|for file in) (/sys/[^ ;]+).* '([<>]?=)' '(.*?)'", copy["content"])
            out |= {by_path(content)[path].key: (operator, value) for path, operator, value in puts}
        elif copy and "/grub.d/" in copy["dest"]:
            words = copy["content"].split('"')[1].split()
            out |= read_arguments(words[1:], content)
    return out


def read_talos(text: str, content: Content) -> Pairs:
    machine = yaml.safe_load(text)["machine"]
    out: Pairs = {key: ("=", value) for key, value in machine.get("sysctls", {}).items()}
    dotted = {path.removeprefix("/sys/").replace("/", "."): wanted for path, wanted in by_path(content).items()}
    out |= {dotted[name].key: ("=", value) for name, value in machine.get("sysfs", {}).items()}
    fields = machine.get("kubelet", {}).get("extraConfig", {})
    out |= {f"kubelet.{name}": ("=", str(value)) for name, value in fields.items()}
    for module in machine.get("kernel", {}).get("modules", []):
        out[f"module.{module['name']}"] = ("=", "loaded")
        for option in module.get("parameters", []):
            parameter, _, value = option.partition("=")
            out[f"module_parameter.{module['name']}.{parameter}"] = ("=", value)
    return out


def read_nodewright(text: str, content: Content) -> Pairs:
    config = yaml.safe_load(text)["spec"]["packages"]["tuning"].get("configMap", {})
    return read_sysctl_d(config.get("sysctl.conf", "")) | read_arguments(config.get("grub.conf", "").split(), content)


def read_openshift(text: str, content: Content) -> Pairs:
    return read_tuned(yaml.safe_load(text)["spec"]["profile"][0]["data"], content)


def read_profile(text: str, content: Content) -> Pairs:
    document = schema.parse(text)
    marks = [*document.labels, *document.annotations, *document.taints]
    assert marks == [
        *((mark.key, mark.value) for mark in (*content.labels, *content.annotations)),
        *((taint.key, taint.effect, taint.value) for taint in content.taints),
    ]
    return {wish.key: (wish.operator, wish.value) for wish in document.settings}


def read_nothing(text: str, content: Content) -> Pairs:
    """Formats of the cluster hold no setting."""
    return {}


READERS = {
    "profile": read_profile,
    "sysctl.d": lambda text, content: read_sysctl_d(text),
    "tuned": read_tuned,
    "openshift-tuned": read_openshift,
    "machineconfig": read_machineconfig,
    "ansible": read_ansible,
    "talos": read_talos,
    "nodewright": read_nodewright,
    "terraform": read_nothing,
    "objects": read_nothing,
    "kustomize": read_nothing,
}


# ── Laws ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_every_format_has_a_reader():
    assert READERS.keys() == exports.FORMATS.keys()


@pytest.mark.parametrize("to", READERS)
@settings(max_examples=40)
@given(contents(), st.booleans())
def test_each_setting_is_in_the_file_with_its_value_or_named_as_missing(
    to: str, content: Content, is_fixed: bool
) -> None:
    export = written(content, to, is_fixed)

    exported = READERS[to](export.text, content)
    missing = {entry.key for entry in export.missing if entry.part == "settings"}
    wanted = {setting.key: (setting.operator, setting.value) for setting in content.settings}
    assert exported.keys() | missing == wanted.keys()
    assert not exported.keys() & missing
    for key, (operator, value) in exported.items():
        assert value == wanted[key][1], key
        assert operator == wanted[key][0] or (is_fixed and operator == "="), key


@pytest.mark.parametrize("to", READERS)
@settings(max_examples=20)
@given(contents())
def test_each_mark_is_in_the_file_or_named_as_missing(to: str, content: Content) -> None:
    export = written(content, to)

    if to in exports.OF_CLUSTER:
        return  # the profile's reader looks at them, too, and the others have tests of their own
    machine = yaml.safe_load(export.text)["machine"] if to == "talos" else {}
    for part, name in (("labels", "nodeLabels"), ("annotations", "nodeAnnotations")):
        marks = {mark.key: mark.value for mark in getattr(content, part)}
        kept = machine.get(name, {})
        assert {key: marks[key] for key in kept} == kept
        assert kept.keys() | {m.key for m in export.missing if m.part == part} == marks.keys()
    taints = {f"{key}:{text.rpartition(':')[2]}" for key, text in machine.get("nodeTaints", {}).items()}
    assert taints | {m.key for m in export.missing if m.part == "taints"} == {t.name for t in content.taints}


def head_of(export: exports.Export) -> list[str]:
    """Return the lines for people that a file begins with."""
    if export.format.key == "terraform":
        document = json.loads(export.text)
        assert next(iter(document)) == "//"
        return [str(line) for line in document["//"]]
    head = export.text.split("\n\n")[0].splitlines()
    assert all(line.startswith("#") for line in head)
    return [line.removeprefix("#").removeprefix(" ") for line in head]


@pytest.mark.parametrize("to", READERS)
def test_what_is_missing_stands_in_the_first_lines_as_comments(to: str) -> None:
    content = schema.flatten(schema.parse(library.source("gpu-baseline")), None, origin="x").content
    text = "labels: {a: b}\nsettings: {cpu.scaling_governor: performance, cmdline.iommu: pt}\n"
    content = schema.flatten(schema.parse(text), content, origin="y").content

    export = written(content, to)

    head = head_of(export)
    assert head[0] == "gpu-base r1, sha256:00"
    assert [f"  {missing}" in head for missing in export.missing] == [True] * len(export.missing)


def test_sysctl_d_does_not_lower_a_node_that_has_more_unless_asked_to():
    content = schema.flatten(schema.parse("settings: {vm.max_map_count: '>= 262144'}\n"), None, origin="x").content

    careful = written(content, "sysctl.d")
    assert read_sysctl_d(careful.text) == {}
    assert "# vm.max_map_count = 262144  (wanted >=)" in careful.text
    assert "may make a node worse" in careful.missing[0].why
    assert read_sysctl_d(written(content, "sysctl.d", is_fixed=True).text) == {"vm.max_map_count": ("=", "262144")}


def test_tuned_raises_and_lowers_single_numbers_only():
    text = (
        "settings: {kernel.pid_max: '>= 4194304', vm.swappiness: '<= 10', net.ipv4.tcp_rmem: '>= 4096 87380 6291456'}\n"
    )
    content = schema.flatten(schema.parse(text), None, origin="x").content

    export = written(content, "tuned")

    assert "kernel.pid_max=>4194304\nvm.swappiness=<10\n" in export.text
    assert [missing.key for missing in export.missing] == ["net.ipv4.tcp_rmem"]
    assert read_ini(export.text)["main"]["summary"] == "Setpoint profile gpu-base"


def test_shapes_that_other_programs_insist_on():
    text = "settings: {vm.swappiness: 10, cmdline.iommu: pt, hugepages-1Gi: 2, module.ib_umad: loaded}\n"
    content = schema.flatten(schema.parse(text), None, origin="x").content
    documents = {
        to: yaml.safe_load(written(content, to).text)
        for to in READERS
        if to not in ("profile", "sysctl.d", "tuned", "terraform")
    }

    assert documents["openshift-tuned"]["metadata"]["namespace"] == "openshift-cluster-node-tuning-operator"
    assert "machineConfigLabels" in documents["openshift-tuned"]["spec"]["recommend"][0]
    assert documents["machineconfig"]["spec"]["kernelArguments"] == ["hugepagesz=1G", "hugepages=2", "iommu=pt"]
    assert documents["machineconfig"]["metadata"]["labels"] == {"machineconfiguration.openshift.io/role": "worker"}
    package = documents["nodewright"]["spec"]["packages"]["tuning"]
    assert package["interrupt"] == {"type": "reboot"}
    assert {i["type"] for i in package["configInterrupts"].values()} <= {
        "service",
        "reboot",
        "noop",
        "restartAllServices",
    }
    assert all(task["name"] for task in documents["ansible"][0]["tasks"])
    assert documents["talos"]["machine"]["sysctls"] == {"vm.swappiness": "10"}


def remarks(to: str, text: str, is_fixed: bool = False) -> str:
    content = schema.flatten(schema.parse(text), None, origin="x").content
    export = written(content, to, is_fixed)
    for remark in export.remarks:
        assert remark in head_of(export), "it goes with the file"
    return " ".join(export.remarks[1:])


def test_what_a_file_does_beside_its_settings_is_said_where_it_holds_and_nowhere_else():
    argument, sysctl = "settings: {cmdline.iommu: pt}\n", "settings: {vm.swappiness: 10}\n"

    assert "overwrites GRUB_CMDLINE_LINUX_DEFAULT" in remarks("nodewright", argument)
    assert "GRUB" not in remarks("nodewright", sysctl)
    assert "does not know" in remarks("nodewright", sysctl)
    assert "when it joins" in remarks("talos", "taints: [{key: x.io/y, effect: NoSchedule}]\n")
    assert "command line" in remarks("tuned", "settings: {transparent_hugepage.enabled: madvise}\n")
    assert "loads it again" in remarks("openshift-tuned", "settings: {module.ib_umad: loaded}\n")
    assert "at boot" in remarks("machineconfig", "settings: {block.nvme.read_ahead_kb: 4096}\n")
    assert "next time" in remarks("ansible", "settings: {module_parameter.nvme_core.io_timeout: 255}\n")
    for to in READERS:
        assert (remarks(to, "labels: {a: b}\n") == "") == (to != "terraform"), to


def test_a_plain_value_for_at_least_is_said_to_be_one():
    text = "settings: {vm.max_map_count: '>= 262144'}\n"

    assert "better off" in remarks("talos", text, is_fixed=True)
    assert remarks("talos", text) == ""
    assert remarks("talos", "settings: {vm.swappiness: 10}\n", is_fixed=True) == ""


def test_what_is_missing_is_grouped_by_why_and_nothing_falls_out():
    content = schema.flatten(schema.parse(library.source("gpu-baseline")), None, origin="x").content

    export = written(content, "sysctl.d")

    assert [entry for _, entries in export.reasons for entry in entries if entry not in export.missing] == []
    assert sum(len(entries) for _, entries in export.reasons) == len(export.missing)
    assert len(export.reasons) == 2


def test_exporting_twice_gives_the_same_file():
    content = schema.flatten(schema.parse(library.source("gpu-baseline")), None, origin="x").content
    assert [written(content, to).text for to in READERS] == [written(content, to).text for to in READERS]
