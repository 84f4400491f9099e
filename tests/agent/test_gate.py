"""Every change of the node passes one gate: nothing denied is written for a spec, a journal or a repair."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agent import boot_loader, cards, gate, kinds, persisted, trial_files
from agent.host import Command
from agent.journal import Journal
from agent.kinds import kubelet
from agent.kinds.base import WriteRefused
from agent.kinds.lifeline import Lifeline
from contract import key_lists, keys, nics
from contract.nodetuning import Restore, Wanted
from tests.agent.kernel import SYS, Agent, Kernel, want

LIVE = {
    "kernel.yama.ptrace_scope": "1", "kernel.panic": "10", "kernel.core_pattern": "core", "vm.panic_on_oom": "0",
    "kernel.modprobe": "/sbin/modprobe", "net.core.default_qdisc": "fq", "net.ipv4.ip_forward": "1",
    "kernel.unprivileged_bpf_disabled": "0",
}  # fmt: skip
OTHERS = ("vm.swappiness", "vm.dirty_bytes", "vm.dirty_ratio", "hugepages-2Mi", "transparent_hugepage.enabled",
          "block.nvme.scheduler", "module.ib_umad", "cmdline.init", "cmdline.crashkernel", "cmdline.iommu",
          "module_parameter.nvme.poll_queues", "cpu.scaling_governor")  # fmt: skip
VALUES = ("0", "1", "2", "3", "10", "60", "99999999", "fq", "|/bin/sh", "fq\nkernel.core_pattern = |/bin/sh",
          "$(reboot)", "mixed:1,3", "mixed:10,$(x)", "loaded", "always", "none", "no", "pt", "1 2", "")  # fmt: skip
MEMORY_KIB = 16384000
DISKS = ("nvme0n1", "sda", "vda", "xvda")
PLACES = [f"/sys/block/{disk}/queue/{name}" for disk in DISKS for name in key_lists.BLOCK_ATTRIBUTES]
PLACES += ["/sys/devices/system/cpu/cpu0/power/pm_qos_resume_latency_us"]
CARDS = {"eno1": nics.DEFAULT_ROUTE, "roce0": nics.RDMA, "eno2": nics.OTHER}
PLACES += [cards.place(card, name) for card in CARDS for name in nics.ATTRIBUTES]
PLACES += [f"/sys/class/net/{card}/device/vendor" for card in CARDS]
PLACES += ["/sys/class/infiniband/mlx5_0/device/net/roce0/ifindex"]
ROUTES = "Iface Destination Gateway Flags RefCnt Use Metric Mask\neno1 00000000 0101A8C0 0003 0 0 0 00000000"


def kernel_of_the_attack() -> Kernel:
    kernel = Kernel(**{SYS + key.replace(".", "/"): value for key, value in LIVE.items()})
    kernel.live["/sys/module/nvme/parameters/poll_queues"] = "0"
    return kernel


def is_denied(key: str, value: str) -> bool:
    """Judged apart from the agent's own code, from the lists alone."""
    if key in key_lists.DENIED or not keys.is_allowed(key) or (key, value) in key_lists.DENIED_VALUES:
        return True
    if key in key_lists.KUBELET_OWNED and value != key_lists.KUBELET_OWNED[key]:
        return True
    if key.startswith("hugepages-2Mi") and int(value) * 2048 > MEMORY_KIB * 0.9:
        return True
    return not re.fullmatch(r"[A-Za-z0-9_.,:=+@/ -]+", value)


def written(kernel: Kernel) -> list[tuple[str, str]]:
    """Key and value of all that reached the kernel, its modules, and the files that the next boot reads."""
    writes = []
    for what, *words in kernel.effects:
        if what == "write":
            writes.append((gate.key_of(words[0]) or words[0], words[1]))
        elif what == "run" and words[0] == "MODPROBE":
            writes.append((f"module.{words[1]}", "loaded"))
        elif what == "persist":
            text = "\n".join(line for line in words[1].splitlines() if not line.startswith("#"))
            if words[0] == persisted.SYSCTL:
                writes += [tuple(line.split(" = ", 1)) for line in text.splitlines()]  # type: ignore[misc]
            elif words[0] == boot_loader.DROP_IN:
                for argument in re.findall(r'LINUX (.*)"$', text, re.MULTILINE):
                    for word in argument.split():
                        name, _, value = word.partition("=")
                        writes.append((f"cmdline.{name}", value or "present"))
            elif words[0] == persisted.MODULES:
                writes += [(f"module.{line}", "loaded") for line in text.splitlines()]
    return writes


key_ = st.sampled_from((*LIVE, *OTHERS))
value_ = st.sampled_from(VALUES)
wanted_ = st.builds(Wanted, key_, st.sampled_from(["=", ">="]), value_, st.none() | value_)
restore_ = st.builds(Restore, key_, st.none() | value_, st.none() | value_)


@settings(max_examples=150, deadline=None)
@given(data=st.data(), with_journal=st.booleans(), mode=st.sampled_from(["apply", "enforce"]))
def test_whatever_a_spec_asks_nothing_denied_is_written_on_any_path(data, with_journal, mode):
    kernel = kernel_of_the_attack()
    agent = Agent(kernel)
    for _ in range(3):
        wishes = data.draw(st.lists(wanted_, max_size=3, unique_by=lambda w: w.key))
        backs = data.draw(st.lists(restore_, max_size=3, unique_by=lambda r: r.key))
        observed = agent.ask(mode="observe", observe=tuple(k for k in LIVE)).observed
        # An attacker who writes the spec knows what the kernel answers, and says that the plan saw it.
        backs = [r if data.draw(st.booleans()) else Restore(r.key, r.original, observed.get(r.key)) for r in backs]
        named = {w.key for w in wishes}
        agent.ask(*wishes, restore=tuple(r for r in backs if r.key not in named), mode=mode)
        if mode == "enforce":
            kernel.live[SYS + "vm/swappiness"] = "77"
            agent.core.verify()
        if not with_journal:
            kernel.journal = None
            agent.restart()
    assert [pair for pair in written(kernel) if is_denied(*pair)] == []


@pytest.mark.parametrize(("key", "value"), [("kernel.yama.ptrace_scope", "3"), ("kernel.core_pattern", "|/bin/sh")])
def test_a_journal_that_was_forged_puts_nothing_denied_into_kernel_or_files(kernel, key, value):
    """The journal may be root's work, or that of an agent of an older version with shorter lists."""
    kernel.live[SYS + key.replace(".", "/")] = "1"
    agent = Agent(kernel)
    agent.ask(want("vm.swappiness", "10", "60"))
    body = json.loads(kernel.journal.partition("\n")[2])
    body["entries"][key] = body["entries"]["vm.swappiness"] | {"original": value, "written": value, "answered": "1"}
    content = Journal(kernel)
    content.content.entries[key] = type(content.content.entries["vm.swappiness"])(**body["entries"][key])
    content.save()
    kernel.effects.clear()
    agent.restart()

    agent.ask(want("vm.swappiness", "20", "10"), restore=(Restore(key, value, "1"),))
    agent.ask(want("vm.swappiness", "20", "10"))

    assert [pair for pair in written(kernel) if is_denied(*pair)] == []
    assert key not in kernel.disk[persisted.SYSCTL]


def test_a_repair_writes_nothing_that_may_not_be_set(agent, kernel, monkeypatch):
    """Approved by an older agent's lists, and on the deny-list since."""
    kernel.live[SYS + "kernel/yama/ptrace_scope"] = "1"
    agent.ask(want("kernel.yama.ptrace_scope", "2", "1"), mode="enforce")
    monkeypatch.setitem(key_lists.DENIED, "kernel.yama.ptrace_scope", "for this test")  # type: ignore[arg-type]
    kernel.live[SYS + "kernel/yama/ptrace_scope"] = "0"
    kernel.effects.clear()

    agent.core.verify()

    assert kernel.writes() == []


def test_the_host_is_reached_through_the_gate_alone(agent, kernel):
    """Whichever handler writes, and however wrong it is."""
    host = agent.core._node.host
    paths = (SYS + "kernel/core_pattern", "/etc/passwd", "/sys/kernel/mm/ksm/run", "/proc/sysrq-trigger")
    kernel.live.update(dict.fromkeys(paths, "0"))  # each is there to be written
    for path in paths:
        with pytest.raises(WriteRefused):
            host.write_text(path, "1")
        with pytest.raises(WriteRefused):
            host.persist(path, "x")
    for command, words in (
        (Command.MODPROBE, ("evil",)),
        (Command.UNLOAD, ("ext4",)),
        (Command.GRUBBY_ADD, ("init=/bin/sh",)),
        (Command.GRUBBY_REMOVE, ("root",)),
        (Command.REBOOT, ("--force",)),
        (Command.GRUB_TRY, ("default=1",)),
        (Command.GRUB_TRY, ("setpoint_try=0123456789abcdef", "default=1")),
        (Command.GRUB_TRY_NOTHING, ("saved_entry",)),
    ):
        with pytest.raises(WriteRefused):
            host.run(command, *words)
    assert kernel.effects == []


def test_each_file_that_the_agent_persists_is_one_that_the_gate_knows():
    kubelets = {f"{folder}/{kubelet.DROP_IN}" for folder in kubelet.FOLDERS}
    boot = {boot_loader.DROP_IN, boot_loader.MENU}
    assert {*persisted.FILES, *persisted.UNITS, *kubelets, *boot, *trial_files.FILES} == gate.FILES


@pytest.mark.parametrize("key", sorted(key_lists.ALLOWED))
def test_each_key_that_may_be_written_is_known_to_the_gate_by_its_path(key):
    """A kind with a new place in /sys would be refused everywhere else."""
    kind = keys.kind_of(key)
    if kind in (keys.KeyKind.MODULE, keys.KeyKind.DISK_LAYOUT) or kind in keys.AT_START:
        return
    kernel = Kernel(**dict.fromkeys(PLACES, "1") | {"/proc/net/route": ROUTES})
    paths = kinds.handlers(Journal(kernel), Lifeline())[kind].paths(kernel, key)
    assert paths or key == "hugepages-1Gi"
    for path in paths:  # of a network card the gate knows the attribute, and judges it alike in every class
        assert gate.key_of(path) == re.sub(r"^nic\.[a-z-]+", f"nic.{nics.OTHER}", key)
