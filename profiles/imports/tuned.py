"""TuneD's tuned.conf(5): sections of plugins, of which some set what a profile can want.

What each plugin does with its options: tuned/plugins/ of redhat-performance/tuned.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from contract import isolation
from contract.key_lists import CPU_LATENCY
from contract.nodetuning import Operator
from profiles.catalog import tuned_words
from profiles.catalog.host_paths import DISKS, key_of_path
from profiles.imports import ini, kernel_arguments
from profiles.imports.draft import DraftBuilder, ImportedDraft, canonical_isolation
from profiles.imports.ini import Option, Section
from profiles.imports.sysctl_d import dotted

_SIGNED = re.compile(r"([<>])\s*(-?[0-9]+)")
_OPERATORS = {">": Operator.AT_LEAST, "<": Operator.AT_MOST}
_TRUE = ("true", "True", "1")
_YES = ("y", "yes", "t", "true", "1")
_CLASSES = {glob: disks for disks, glob in DISKS.items()} | {"nvme*": "nvme"}
_NARROWING = ("devices_udev_regex", "cpuinfo_regex", "uname_regex")
"""Options that make a section apply to some machines or devices."""
_OF_EVERY_SECTION = {
    "type": "",
    "enabled": "",
    "devices": "",
    "replace": "there is no other profile that it replaces the section of",
    "drop": "there is no other profile whose options it drops",
    "priority": "a profile has no order of sections",
    "script_pre": "a profile runs no scripts",
    "script_post": "a profile runs no scripts",
}
"""Options of any section, and why they are not taken; empty: they are judged with the section."""
_VM = {
    "transparent_hugepages": "transparent_hugepage.enabled",
    "transparent_hugepage": "transparent_hugepage.enabled",
    "transparent_hugepage.defrag": "transparent_hugepage.defrag",
    "dirty_ratio": "vm.dirty_ratio",
    "dirty_background_ratio": "vm.dirty_background_ratio",
}


def read(text: str) -> ImportedDraft:
    """Return the draft of a file. Raises Invalid."""
    builder = DraftBuilder()
    take(text, builder)
    return builder.finish()


def take(text: str, builder: DraftBuilder, line_of: Callable[[int], int] = lambda number: number) -> None:
    """Take each section; `line_of` turns a line of `text` into one of the file that holds it."""
    parsed = ini.parse(text)
    for line, broken, reason in parsed.broken:
        builder.refuse(line_of(line), broken, reason)
    for section in parsed.sections:
        section.line = line_of(section.line)
        for option in section.options:
            option.line = line_of(option.line)
    options = [option for section in parsed.sections for option in section.options]
    flags = next((tuned_words.FLAGS[option.value] for option in options if option.value in tuned_words.FLAGS), ())
    for section in parsed.sections:
        _Taker(builder, flags).section(section)


class _Taker:
    """One section's way into the draft."""

    def __init__(self, builder: DraftBuilder, flags: tuple[str, ...]) -> None:
        self.builder = builder
        self.flags = flags
        """Of isolated CPUs, as the file's own line of the boot loader has them."""
        self.plugins: dict[str, Callable[[Option], None]] = {
            "main": self._main,
            "sysctl": self._sysctl,
            "vm": self._vm,
            "cpu": self._cpu,
            "sysfs": self._sysfs,
            "modules": self._module,
            "variables": self._variable,
        }

    def section(self, section: Section) -> None:
        plugin = section.option("type") or section.name
        is_known = plugin in self.plugins or plugin in ("disk", "bootloader")
        if not section.options and plugin != "main":
            reason = "is empty" if is_known else f"Setpoint does nothing of what TuneD's plugin {plugin} does"
            self.builder.refuse(section.line, f"[{section.name}]", reason)
        for option in section.options:
            if reason := self._reason_of_section(section, plugin, option, is_known):
                self.refuse(option, reason)
        wanted = [
            option
            for option in section.options
            if option.name not in _OF_EVERY_SECTION and not self._reason_of_section(section, plugin, option, is_known)
        ]
        wanted = [option for option in wanted if not self._is_replaced(section, option)]
        if plugin == "disk":
            self._disks(section, wanted)
        elif plugin == "bootloader":
            self._boot_loader(section, wanted)
        elif is_known:
            for option in wanted:
                self.plugins[plugin](option)

    def _reason_of_section(self, section: Section, plugin: str, option: Option, is_known: bool) -> str:
        """Return why an option is not looked at; empty: it is, or has its effect on the rest."""
        narrowing = next((name for name in _NARROWING if name in section.last), None)
        if not is_known:
            return f"Setpoint does nothing of what TuneD's plugin {plugin} does"
        if (section.option("enabled") or "1") not in _TRUE:
            return "its section is not enabled"
        if narrowing:
            return f"its section applies to some machines or devices only ({narrowing})"
        if option.name == "devices" and plugin != "disk":
            return "a profile speaks of all devices of a kind"
        if option.name in _OF_EVERY_SECTION:
            return _OF_EVERY_SECTION[option.name]
        is_derived = plugin == "bootloader" and option.value in tuned_words.FLAGS
        return "uses a variable or a function of TuneD's" if "${" in option.text and not is_derived else ""

    def _is_replaced(self, section: Section, option: Option) -> bool:
        later = section.last[option.name]
        if later is not option:
            self.refuse(option, f"line {later.line} sets it again")
        return later is not option

    def refuse(self, option: Option, reason: str) -> None:
        self.builder.refuse(option.line, option.text, reason)

    def assign(self, key: str, value: str, option: Option) -> None:
        """Take a value, with TuneD's > (raise to) and < (lower to)."""
        if signed := _SIGNED.fullmatch(value):
            operator, number = str(_OPERATORS[signed[1]]), signed[2]
        else:
            operator, number = str(Operator.EQUALS), value
        self.builder.assign(key, number, line=option.line, text=option.text, operator=operator)

    # ── Plugins ───────────────────────────────────────────────────────────────────────────────────────────────────────
    def _main(self, option: Option) -> None:
        if option.name == "summary":
            self.builder.describe(option.value)
        elif option.name == "include":
            self.refuse(option, "what it includes is not in this text; import that too, and extend it")
        else:
            self.refuse(option, "is about TuneD itself")

    def _sysctl(self, option: Option) -> None:
        self.assign(dotted(option.name), _unquoted(option.value), option)

    def _vm(self, option: Option) -> None:
        name, value = option.name, option.value
        if name in ("dirty_bytes", "dirty_background_bytes"):
            percent = value.endswith("%")
            key = f"vm.{name.removesuffix('bytes')}ratio" if percent else f"vm.{name}"
            self.builder.assign(key, value.removesuffix("%"), line=option.line, text=option.text)
        elif name in _VM:
            self.builder.assign(_VM[name], value, line=option.line, text=option.text)
        else:
            self.refuse(option, "is no option of the plugin vm that Setpoint knows")

    def _cpu(self, option: Option) -> None:
        if option.name == "pm_qos_resume_latency_us":
            self.assign(CPU_LATENCY, option.value, option)
        elif option.name != "governor":
            self.refuse(option, "of the plugin cpu only governor and pm_qos_resume_latency_us are taken")
        elif "|" in option.value:
            self.refuse(option, "is a list of governors to try; a profile names one")
        else:
            self.assign("cpu.scaling_governor", option.value, option)

    def _sysfs(self, option: Option) -> None:
        if key := key_of_path(option.name):
            self.assign(key, _unquoted(option.value), option)
        else:
            self.refuse(option, "a profile has no setting for this path; it speaks of all disks of a kind and all CPUs")

    def _module(self, option: Option) -> None:
        """`+r` loads the module again now; the rest are its parameters."""
        module, value = option.name.replace("-", "_"), option.value
        if loads := value.startswith("+r"):
            self.builder.assign(f"module.{module}", "loaded", line=option.line, text=option.text)
            value = value.removeprefix("+r").lstrip().removeprefix(",")
        words = value.split()
        if not words and not loads:
            self.refuse(option, "sets no parameter, and does not load the module")
        for word in words:
            parameter, equals, wanted = word.partition("=")
            if equals:
                key = f"module_parameter.{module}.{parameter}"
                self.builder.assign(key, wanted, line=option.line, text=f"{option.name}={word}")
            else:
                self.builder.refuse(option.line, f"{option.name}={word}", "is no parameter=value")

    def _disks(self, section: Section, options: list[Option]) -> None:
        devices = section.option("devices")
        given = devices.replace(";", ",").split(",") if devices else DISKS.values()
        names = list(dict.fromkeys(name.strip() for name in given))
        unknown = [name for name in names if name not in _CLASSES]
        for option in options:
            if unknown:
                self.refuse(option, f"a profile speaks of all disks of a kind, and not of {unknown[0][:40]}")
            elif option.name == "elevator":
                for name in names:
                    self.assign(f"block.{_CLASSES[name]}.scheduler", option.value, option)
            elif option.name == "readahead":
                self._read_ahead(option, [_CLASSES[name] for name in names])
            else:
                self.refuse(option, "of the plugin disk only readahead and elevator are taken")

    def _read_ahead(self, option: Option, classes: list[str]) -> None:
        """KiB, or with ` s` behind it sectors of 512 bytes."""
        number, _, unit = option.value.partition(" ")
        if unit.strip().startswith("s"):
            digits = number.lstrip("<>")
            if not digits.isdecimal() or len(digits) > 20 or int(digits) % 2:
                self.refuse(option, "is no whole number of KiB")
                return
            number = number.removesuffix(digits) + str(int(digits) // 2)
        elif unit:
            self.refuse(option, "is a number of KiB, or of sectors with an s behind it")
            return
        for disks in classes:
            self.assign(f"block.{disks}.read_ahead_kb", number, option)

    def _variable(self, option: Option) -> None:
        """Take the list that TuneD's own profiles derive their isolation from; lines that use it are named."""
        if option.name != tuned_words.VARIABLE:
            self.refuse(option, "a variable is not taken; lines that use it are named")
        else:
            self.assign(isolation.KEY, canonical_isolation(option.value, *self.flags), option)

    def _boot_loader(self, section: Section, options: list[Option]) -> None:
        """Words of all `cmdline…` options, in their order; those with a minus are taken away from others' alone."""
        is_skipped = (section.option("skip_grub_config") or "").lower() in _YES
        words: list[kernel_arguments.Word] = []
        for option in options:
            if not option.name.startswith("cmdline"):
                self.refuse(option, "of the plugin bootloader only kernel arguments are taken")
            elif is_skipped:
                self.refuse(option, "skip_grub_config keeps it from the boot loader")
            elif option.value.startswith("-"):
                self.refuse(option, "takes arguments away; a profile only sets them")
            elif option.value not in tuned_words.FLAGS:
                line = option.line
                words += [(word, line) for word in _unquoted(option.value.removeprefix("+").strip()).split()]
        kernel_arguments.take(words, self.builder, pages_are_settings=False)


def _unquoted(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value
