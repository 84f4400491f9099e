"""A machine that loses its power, its network, the space of its disk or its boot loader's file in the middle of a step.

Each ends as the laws say: what is reported is what the kernel has, nothing is written unasked, and the machine is back.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.full.harness.site import Site
from tests.nodemachine.node import Node

pytestmark = pytest.mark.usefixtures("judged")

GRUB = "/boot/grub/grub.cfg"
NOT_LOADED = "/etc/modprobe.d/not-loaded.conf"
DROP_IN = "/etc/default/grub.d/90-setpoint.cfg"
MENU_SCRIPT = "/etc/grub.d/06_setpoint"
CRASHES = "/etc/systemd/system/crashes.service"
CRASH = """\
[Unit]
DefaultDependencies=no
After=systemd-remount-fs.service
Before=sysinit.target
[Service]
Type=oneshot
ExecStart=/bin/sh -c 'if grep -q {argument} /proc/cmdline; then echo c > /proc/sysrq-trigger; fi'
[Install]
WantedBy=sysinit.target
"""

FILL = """\
most=$(( $(stat -f -c %f /) * $(stat -f -c %S /) ))
fallocate -l $(( most - (64 << 20) )) /var/fill
! cat /dev/zero > /var/rest 2>/dev/null  # it ends because nothing is left
sync
systemd-run --quiet --unit=fills sh -c 'while :; do cat /dev/zero >> /var/rest; sleep 0.1; done' 2>/dev/null
"""
"""The unit takes what the kubelet's eviction and journald give back as soon as they notice."""
ISOLATED = "cpu.isolated"
KEPT_TO = r"""
echo ticks=$(sed 's/(null)//' /sys/devices/system/cpu/nohz_full)
echo callbacks=$(dmesg | sed -n 's/.*Offload RCU callbacks from CPUs: \([0-9,-]*\)[.]$/\1/p')
echo interrupts=$(cat /proc/irq/default_smp_affinity)
echo console=$(cat /proc/irq/4/smp_affinity_list)
"""
SETTLED_SECONDS = 1500.0
"""A boot takes half a minute on a quiet machine, and some of these three; beside the fast tier five times as long."""


@pytest.fixture
def pool(site: Site) -> int:
    return site.pool(pool="machines")


def settled(site: Site, node: Node, rollout: str, *statuses: str) -> dict[str, Any]:
    """Wait until the rollout is done, and the node is one that takes work again."""
    ended = site.until(rollout, *statuses, seconds=SETTLED_SECONDS)
    node.eventually(lambda: node.is_ready and not node.object()["spec"].get("unschedulable"))
    return ended


def kept_to(node: Node) -> dict[str, str]:
    """Return the CPUs that the running kernel keeps ticks and callbacks off, and those that interrupts start on."""
    return dict(line.split("=", 1) for line in node.machine.shell(KEPT_TO).splitlines())


@pytest.mark.long
def test_power_lost_in_a_step_is_told_and_costs_a_boot_and_nothing_else(site: Site, node: Node, pool: int) -> None:
    """A boot that is not Setpoint's: what it brought is read from the kernel, and an operator decides what follows."""
    wanted = {"cmdline.nmi_watchdog": "0", "vm.swappiness": "29"}
    before, first = node.values(wanted), node.boot_id
    rollout = site.rollout_of(pool, site.revision(wanted))
    site.until_step(rollout, node.name, "applying", "restarting", seconds=240)

    node.machine.power_off()
    node.machine.power_on()
    boot = node.machine.await_boot()

    step = site.until_step(rollout, node.name, "succeeded", "failed", seconds=SETTLED_SECONDS)
    if step["status"] == "failed":  # the power went before the reboot was granted
        assert f"not by Setpoint: boot {first[:8]} became {boot[:8]}" in step["error"]
        assert node.boot_id == boot, "nothing follows of itself"
        site.act(rollout, "retry-failed", step=step["id"])
    settled(site, node, rollout, "succeeded")
    assert node.values(wanted) == wanted
    site.act(rollout, "revert")
    settled(site, node, rollout, "reverted")
    assert node.values(wanted) == before


@pytest.mark.long
def test_power_lost_while_soaking_and_in_a_revert_costs_a_retry_at_most(site: Site, node: Node, pool: int) -> None:
    wanted = {"cmdline.nmi_watchdog": "0", "vm.swappiness": "29"}
    before = node.values(wanted)
    rollout = site.rollout_of(pool, site.revision(wanted), soak_seconds=60)
    site.until_step(rollout, node.name, "soaking", seconds=SETTLED_SECONDS)
    lose_power(node)
    retried(site, node, rollout, "succeeded")
    assert node.values(wanted) == wanted, "what is kept in files holds in a boot of its own, too"

    site.act(rollout, "revert")
    site.until_step(rollout, node.name, "applying", "restarting", seconds=240)
    lose_power(node)
    retried(site, node, rollout, "reverted")
    assert node.values(wanted) == before


def lose_power(node: Node) -> None:
    node.machine.power_off()
    node.machine.power_on()
    node.machine.await_boot()


def retried(site: Site, node: Node, rollout: str, status: str) -> None:
    """Wait for the end of a step, with the retry that an operator gives it if it fails or is held."""
    step = site.until_step(rollout, node.name, status, "failed", "held", seconds=SETTLED_SECONDS)
    if step["status"] != status:
        assert step["error"], "a person who decides has to know why"
        site.act(rollout, "retry-failed", step=step["id"])
    settled(site, node, rollout, status)


def test_a_node_without_network_is_waited_for_and_changed_when_it_is_back(site: Site, node: Node, pool: int) -> None:
    wanted = {"net.core.somaxconn": "16384"}
    before = node.values(wanted)
    plan = site.plan(pool, site.revision(wanted))
    site.approve(plan)
    node.machine.unplug()
    try:
        rollout = site.start(plan)
        site.until_step(rollout, node.name, "applying", "verifying", "queued", says="agent")
        assert node.values(wanted) == before, "nothing reached it"
    finally:
        node.machine.plug()

    settled(site, node, rollout, "succeeded")
    assert node.values(wanted) == wanted
    site.act(rollout, "revert")
    settled(site, node, rollout, "reverted")
    assert node.values(wanted) == before


def test_a_full_disk_is_said_and_nothing_is_written_that_could_not_be_undone(site: Site, node: Node, pool: int) -> None:
    """An agent without its journal could not put a value back, so it writes none."""
    wanted = {"vm.swappiness": "31"}
    before = node.values(wanted)
    plan = site.plan(pool, site.revision(wanted))
    site.approve(plan)
    node.machine.shell(FILL, seconds=240)
    try:
        rollout = site.start(plan)
        step = site.until_step(rollout, node.name, "failed", "held", "verifying", "applying", says="space", seconds=120)
        assert re.search("[Nn]o space", f"{step['error']} {step['waiting_for']}")
        assert node.values(wanted) == before
    finally:
        node.machine.shell("systemctl stop fills; rm -f /var/fill /var/rest; sync")

    if site.rollout(rollout)["actions"]["retry-failed"]:
        site.act(rollout, "retry-failed", step=site.steps(rollout)[node.name]["id"])
    settled(site, node, rollout, "succeeded")
    assert node.values(wanted) == wanted
    site.act(rollout, "revert")
    settled(site, node, rollout, "reverted")
    assert node.values(wanted) == before


def test_a_boot_loader_that_cannot_be_written_stops_the_step_before_any_reboot(
    site: Site, node: Node, pool: int
) -> None:
    boot, menu = node.boot_id, node.machine.read(GRUB)
    node.machine.run("chattr", "+i", GRUB)
    try:
        rollout = site.rollout_of(pool, site.revision({"cmdline.nmi_watchdog": "0"}))
        step = site.until_step(rollout, node.name, "failed", "held", seconds=300)
        assert "update-grub" in step["error"]
        assert node.machine.read("/proc/sys/kernel/random/boot_id") == boot
        assert node.machine.read(GRUB) == menu
    finally:
        node.machine.run("chattr", "-i", GRUB)

    site.act(rollout, "revert")
    settled(site, node, rollout, "reverted")
    assert node.machine.shell(f"test -e {DROP_IN} || echo gone") == "gone"
    assert "nmi_watchdog" not in node.machine.read(GRUB)
    assert "nmi_watchdog" not in node.machine.read("/proc/cmdline")


@pytest.mark.long
def test_a_node_that_does_not_come_up_with_new_arguments_boots_with_the_old_ones(
    site: Site, node: Node, pool: int
) -> None:
    """A driver that crashes with the argument, early in the boot: nothing of Setpoint's runs by then.

    The same boots bring isolated CPUs, and take them away: one of the machine's two.
    """
    wanted = {"cmdline.nmi_watchdog": "0"}
    before, boot = node.values(wanted), node.boot_id
    shared = kept_to(node)
    assert shared == {"ticks": "", "callbacks": "", "interrupts": "3", "console": "0-1"}
    node.machine.write(CRASHES, CRASH.format(argument="nmi_watchdog=0"))
    node.machine.run("systemctl", "enable", "crashes.service")
    try:
        rollout = site.rollout_of(pool, site.revision({**wanted, ISOLATED: "1"}))
        step = site.until_step(rollout, node.name, "failed", "held", seconds=SETTLED_SECONDS)
        assert "did not come up" in step["error"]
        assert kept_to(node) == shared
        assert "Kernel panic" in node.machine.console.read_text(errors="replace")
        assert node.boot_id not in ("", boot)
        assert node.values(wanted) == before
    finally:
        node.machine.run("systemctl", "disable", "crashes.service")

    site.act(rollout, "retry-failed", step=step["id"])
    settled(site, node, rollout, "succeeded")
    assert node.values(wanted) == wanted
    assert kept_to(node) == {"ticks": "1", "callbacks": "1", "interrupts": "1", "console": "0"}
    assert site.observed(node.name, ISOLATED) == "1"
    assert node.machine.shell(f"test -e {MENU_SCRIPT} || echo gone") == "gone"
    site.act(rollout, "revert")
    settled(site, node, rollout, "reverted")
    assert node.values(wanted) == before
    assert kept_to(node) == shared
    assert node.machine.shell(f"ls {DROP_IN} {MENU_SCRIPT} 2>/dev/null || echo gone") == "gone"
    assert "setpoint" not in node.machine.read(GRUB)


def test_a_value_that_the_kernel_refuses_is_told_in_its_words_and_its_step_leaves_nothing(
    site: Site, node: Node, pool: int
) -> None:
    wanted = {"net.ipv4.tcp_congestion_control": "yeah", "net.ipv4.tcp_keepalive_intvl": "45"}
    available = node.machine.read("/proc/sys/net/ipv4/tcp_available_congestion_control")
    assert "yeah" not in available
    node.machine.write(NOT_LOADED, "install tcp_yeah /bin/false\n")  # writing its name would load it
    before = node.values(wanted)
    try:
        rollout = site.rollout_of(pool, site.revision(wanted))
        step = site.until_step(rollout, node.name, "failed", "held", seconds=120)

        assert "tcp_congestion_control" in step["error"]
        assert re.search("No such file|Invalid|refused", step["error"])
        site.act(rollout, "revert")
        settled(site, node, rollout, "reverted")
    finally:
        node.machine.run("rm", NOT_LOADED)
    assert node.values(wanted) == before
