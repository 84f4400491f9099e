"""TuneD: an ini file of plugins. Its > and < raise and lower single numbers, of sysctls and of a disk's read-ahead."""

from __future__ import annotations

from contract.isolation import Isolation
from contract.keys import KeyKind
from contract.nodetuning import Operator
from contract.resource_managers import cpu_text
from profiles.catalog import tuned_words
from profiles.catalog.host_paths import DISKS
from profiles.content.content import Content, WantedSetting
from profiles.exports.parts import (
    ExportDraft,
    argument,
    in_order_of_the_kernel,
    miss_cards,
    miss_disks,
    miss_services,
    module_name,
    module_parameter,
    of_kind,
    sysfs_path,
)

_SIGN = {Operator.EQUALS: "", Operator.AT_LEAST: ">", Operator.AT_MOST: "<"}


def write(content: Content, draft: ExportDraft) -> str:
    draft.miss_marks(content, "TuneD knows no Kubernetes node")
    miss_services(content, draft, "TuneD knows neither the kubelet's configuration nor systemd's units")
    miss_cards(content, draft)
    miss_disks(content, draft)
    sections: dict[str, list[str]] = {"main": [f"summary=Setpoint profile {draft.name}"]}
    for setting in of_kind(content, KeyKind.CPU_ISOLATION):  # a variable comes before what uses it
        sections["variables"] = [f"{tuned_words.VARIABLE}={cpu_text(Isolation.of(setting.value).cpus)}"]
    _put(sections, "sysctl", [_signed(setting, draft) for setting in of_kind(content, KeyKind.SYSCTL)])
    _put(sections, "vm", [_thp(setting) for setting in of_kind(content, KeyKind.THP)])
    if content.setting("transparent_hugepage.enabled"):
        draft.remark("TuneD leaves transparent huge pages alone where the kernel's command line sets them.")
    _put(sections, "cpu", [f"governor={setting.value}" for setting in of_kind(content, KeyKind.GOVERNOR)])
    latencies = of_kind(content, KeyKind.CPU_LATENCY)
    _put(sections, "cpu", [f"pm_qos_resume_latency_us={setting.value}" for setting in latencies])
    _modules(content, draft, sections)
    _disks(content, draft, sections)
    pages = draft.exact(of_kind(content, KeyKind.HUGEPAGES), "TuneD's sysfs plugin")
    _put(sections, "sysfs", [f"{sysfs_path(setting)}={setting.value}" for setting in pages])
    wanted = in_order_of_the_kernel(draft.exact(of_kind(content, KeyKind.CMDLINE), "a kernel argument"))
    if arguments := [argument(setting) for setting in wanted]:
        _put(sections, "bootloader", [f"cmdline_setpoint=+{' '.join(arguments)}"])
    _isolation(content, draft, sections)
    return "\n".join(f"[{name}]\n" + "".join(f"{line}\n" for line in lines) for name, lines in sections.items())


def _isolation(content: Content, draft: ExportDraft, sections: dict[str, list[str]]) -> None:
    for setting in of_kind(content, KeyKind.CPU_ISOLATION):
        isolation = Isolation.of(setting.value)
        words = tuned_words.words(has_domain=isolation.has_domain, keeps_services=isolation.keeps_services)
        _put(sections, "bootloader", [f"cmdline_isolation={words}"])
        draft.remark("TuneD judges no list of isolated CPUs: compare isolated_cores with those of the machine.")


def _put(sections: dict[str, list[str]], name: str, lines: list[str]) -> None:
    if present := [line for line in lines if line]:
        sections.setdefault(name, []).extend(present)


def _signed(setting: WantedSetting, draft: ExportDraft) -> str:
    """TuneD compares whole numbers only; of a list it would write the text unchanged."""
    sign = _SIGN[Operator(setting.operator)]
    if sign and " " in setting.value:
        return "".join(f"{w.key}={w.value}" for w in draft.exact([setting], "TuneD, for several numbers,"))
    return f"{setting.key}={sign}{setting.value}"


def _thp(setting: WantedSetting) -> str:
    option = "transparent_hugepages" if setting.key.endswith("enabled") else "transparent_hugepage.defrag"
    return f"{option}={setting.value}"


def _modules(content: Content, draft: ExportDraft, sections: dict[str, list[str]]) -> None:
    """`+r` loads a module now; parameters go to modprobe.d through the same plugin."""
    options: dict[str, list[str]] = {module_name(setting): [] for setting in of_kind(content, KeyKind.MODULE)}
    loaded = set(options)
    for setting in draft.exact(of_kind(content, KeyKind.MODULE_PARAMETER), "modprobe.d"):
        module, parameter = module_parameter(setting)
        options.setdefault(module, []).append(f"{parameter}={setting.value}")
    lines = [
        f"{module}={','.join([*(['+r'] if module in loaded else []), *([' '.join(parameters)] if parameters else [])])}"
        for module, parameters in sorted(options.items())
    ]
    if loaded:
        draft.remark("TuneD removes a module and loads it again (+r); one that is in use stays loaded as it is.")
    _put(sections, "modules", lines)


def _disks(content: Content, draft: ExportDraft, sections: dict[str, list[str]]) -> None:
    for setting in of_kind(content, KeyKind.BLOCK):
        _, disks, attribute = setting.key.split(".")
        if attribute == "read_ahead_kb":
            sign = _SIGN[Operator(setting.operator)]
            sections[f"disk_{disks}"] = ["type=disk", f"devices={DISKS[disks]}", f"readahead={sign}{setting.value}"]
        else:
            for exact in draft.exact([setting], "TuneD's sysfs plugin"):
                _put(sections, "sysfs", [f"{sysfs_path(exact)}={exact.value}"])
