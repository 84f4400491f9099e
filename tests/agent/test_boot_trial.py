"""New kernel arguments are tried for one boot: a node that does not come up with them boots with the old ones.

GRUB is a shell here, which runs what the agent wrote into its menu; tests/node has GRUB itself.
"""

from __future__ import annotations

import pytest

from agent.boot_loader import DROP_IN, MENU
from contract.nodetuning import RestartGrant, Restore, Spec
from tests.agent.kernel import EXPIRES, states, want
from tests.agent.test_boot_loader import Node

UPDATE_GRUB = """
for file in "$root"/etc/default/grub.d/*.cfg; do [ -e "$file" ] && . "$file"; done
{
    for script in "$root"/etc/grub.d/*; do
        if [ -x "$script" ]; then "$script" | sed -E 's/^( *)set /\\1/; s/ set / /'; fi
    done
    printf 'line="%s"\\n' "$GRUB_CMDLINE_LINUX"
} > "$root/menu"
"""
EDIT_ENVIRONMENT = """
case "$2" in
    set) printf '%s\\n' "$3" > "$root/boot/grub/grubenv" ;;
    unset) echo '#' > "$root/boot/grub/grubenv" ;;
esac
"""
MOUNTS = """\
21 1 8:2 / / rw,relatime shared:1 - ext4 /dev/sda2 rw
30 21 0:26 / /boot/efi rw shared:9 - vfat /dev/sda1 rw
31 21 8:1 / /boot rw,relatime shared:10 - {kind} /dev/sda1 rw
40 21 0:40 / /bo rw - btrfs /dev/sdb rw
"""
SYSTEMCTL = """
[ "$1" = reboot ] || exit 0
exec /bin/sh "$root/power" "$root"
"""
POWER = """
root=$1 prefix=$1/boot/grub
load_env() { . "$prefix/grubenv"; }
save_env() { [ ! -e "$prefix/failing" ] && echo "$1=" > "$prefix/grubenv"; }
. "$root/menu"
echo "ro quiet $line" > "$root/../proc/cmdline"
boot=$(cat "$root/../proc/sys/kernel/random/boot_id")
echo "boot-$((${boot#boot-} + 1))" > "$root/../proc/sys/kernel/random/boot_id"
fails() { [ "${boot#boot-}" -gt 9 ] || exec /bin/sh "$0" "$root"; }
case "$line" in *iommu=broken*) fails ;; *iommu=*) ;; *) [ ! -e "$root/needs-iommu" ] || fails ;; esac
"""


@pytest.fixture
def node(tmp_path) -> Node:
    made = Node(tmp_path)
    made.program("systemctl", SYSTEMCTL)
    made.program("update-grub", UPDATE_GRUB)
    made.program("grub-editenv", EDIT_ENVIRONMENT)
    made.put("root/power", POWER)
    made.put("proc/1/mountinfo", MOUNTS.format(kind="ext4"))
    made.put("root/etc/grub.d/00_header", "#!/bin/sh")
    made.put("root/boot/grub/grubenv", "#")
    made.put("root/menu", "line=")
    return made


def spec(value: str | None, *, grant: str | None = None, boot: str = "boot-1", **more) -> Spec:
    restart = RestartGrant(grant, "reboot", boot, EXPIRES) if grant else None
    settings = (want("cmdline.iommu", value, more.pop("expect", None)),) if value else ()
    return Spec("uid-1", mode="apply", settings=settings, restart=restart, **more)


def leftovers(node: Node) -> list[str]:
    return [path for path in (DROP_IN, MENU) if (node.root / path.lstrip("/")).exists()]


def booted(node: Node, value: str, **more) -> str:
    """Write the argument, reboot by grant, and let the agent of the next boot look; the state that it reports."""
    node.agent(spec(value, **more))
    grant = {"grant": f"g-{value}-{more.get('boot', '')}", **more}
    node.agent(spec(value, **grant))
    return states(node.agent(spec(value, **grant)))["cmdline.iommu"]


def test_a_node_that_can_fall_back_says_so(node):
    assert node.agent(spec(None, observe=("boot.fallback",))).observed == {"boot.fallback": "grub"}


def test_arguments_that_booted_are_in_the_menu_for_good(node):
    assert booted(node, "pt") == "Effective"
    assert node.arguments().split() == ["ro", "quiet", "panic=10", "iommu=pt"]

    node.power()

    assert node.arguments().split() == ["ro", "quiet", "iommu=pt"]
    assert leftovers(node) == [DROP_IN]


def test_a_node_that_does_not_come_up_boots_with_the_old_arguments_and_says_so(node):
    booted(node, "pt")
    node.power()

    assert booted(node, "broken", boot="boot-3", expect="pt", step="s-2") == "NotEffective"

    assert node.arguments().split() == ["ro", "quiet", "iommu=pt", "setpoint.fallback=1"]
    setting = node.agent(spec("broken", expect="pt", step="s-2")).setting("cmdline.iommu")
    assert "did not come up" in setting.reason
    node.power()
    assert "iommu=pt" in node.arguments().split()


def test_after_a_boot_that_failed_the_way_back_leaves_nothing_and_the_next_try_is_a_new_one(node):
    assert booted(node, "broken") == "NotEffective"

    node.agent(spec(None, restore=(Restore("cmdline.iommu", None, None),), step="s-2"))
    node.power()

    assert leftovers(node) == []
    assert node.arguments().split() == ["ro", "quiet"]
    assert booted(node, "pt", boot="boot-4", step="s-3") == "Effective"


def test_a_boot_without_a_grant_does_not_bring_the_new_arguments(node):
    node.agent(spec("pt"))

    node.power()

    status = node.agent(spec("pt"))
    assert states(status) == {"cmdline.iommu": "PendingRestart"}
    assert "iommu=pt" not in node.arguments()
    node.agent(spec("pt", grant="g-1", boot="boot-2"))
    assert states(node.agent(spec("pt", grant="g-1", boot="boot-2"))) == {"cmdline.iommu": "Effective"}


def test_taking_an_argument_away_is_tried_for_one_boot_too(node):
    booted(node, "pt")
    back = {"restore": (Restore("cmdline.iommu", None, "pt"),), "step": "s-2", "boot": "boot-2"}

    node.agent(spec(None, **back))
    node.power()
    assert "iommu=pt" in node.arguments(), "not granted"
    node.agent(spec(None, **back | {"boot": "boot-3"}, grant="g-2"))
    status = node.agent(spec(None, **back | {"boot": "boot-3"}, grant="g-2"))

    assert states(status) == {"cmdline.iommu": "Restored"}
    node.power()
    assert node.arguments().split() == ["ro", "quiet"]
    assert leftovers(node) == []


def test_a_node_that_does_not_come_up_without_an_argument_boots_with_it_and_says_so(node):
    booted(node, "pt")
    node.put("root/needs-iommu", "")
    back = {"restore": (Restore("cmdline.iommu", None, "pt"),), "step": "s-2", "boot": "boot-2", "grant": "g-2"}

    node.agent(spec(None, **back))
    status = node.agent(spec(None, **back))

    assert "iommu=pt" in node.arguments()
    assert states(status) == {"cmdline.iommu": "NotEffective"}
    assert "did not come up" in status.setting("cmdline.iommu").reason


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("proc/1/mountinfo", MOUNTS.format(kind="btrfs")),
        ("proc/1/mountinfo", ""),
        ("sys/dev/block/8:1/dm/name", "vg-boot"),
        ("sys/dev/block/8:1/md/level", "raid1"),
    ],
)
def test_where_grub_cannot_write_the_arguments_are_in_the_menu_at_once(node, path, text):
    node.put(path, text)

    status = node.agent(spec("pt", observe=("boot.fallback",)))

    assert status.observed == {"boot.fallback": "none"}
    assert leftovers(node) == [DROP_IN]
    assert booted(node, "pt") == "Effective"
    assert node.arguments().split() == ["ro", "quiet", "iommu=pt"]


def test_a_grub_that_could_not_forget_its_variable_boots_with_the_old_arguments(node):
    """Else a node that does not come up would try the same again at every boot."""
    node.put("root/boot/grub/failing", "")

    assert booted(node, "broken") == "NotEffective"

    assert node.arguments().split() == ["ro", "quiet", "setpoint.fallback=1"]


def test_a_boot_that_cannot_be_tried_is_not_begun(node):
    node.program("grub-editenv", "echo 'no space left'; exit 1")
    node.agent(spec("pt"))

    status = node.agent(spec("pt", grant="g-1"))

    assert status.restart.state == "Refused"
    assert "no space left" in status.restart.reason
    assert node.calls("systemctl") == []


@pytest.mark.parametrize("effect", range(20))
def test_arguments_that_changed_after_a_reboot_was_asked_for_are_not_those_that_it_tried(node, effect):
    """The node goes down late, and its agent is killed in the middle of another step."""
    node.program("systemctl", "exit 0")
    node.agent(spec("pt"))
    node.agent(spec("pt", grant="g-1"))
    node.agent(spec("off", step="s-2"), effect)

    node.power()
    node.agent(spec("off", step="s-2"))
    node.power()

    assert "iommu=off" not in node.arguments(), "no boot was granted to it"


HALVES = 24
"""Moments before and after each effect on the way to the reboot; at this one the agent is not killed any more."""


@pytest.mark.parametrize("effect", range(HALVES + 1))
def test_wherever_the_agent_is_killed_the_node_boots_with_the_old_or_the_new_arguments(node, effect):
    granted_spec = spec("pt", grant="g-1")
    assert (node.agent(granted_spec, effect) is None) == (effect < HALVES)
    node.power()
    assert node.arguments().split() in (
        ["ro", "quiet"],
        ["ro", "quiet", "setpoint.fallback=1"],
        ["ro", "quiet", "panic=10", "iommu=pt"],
    )

    boot = node.agent(granted_spec).boot_id
    again = spec("pt", grant="g-2", boot=boot, step="s-2")
    node.agent(again)
    status = node.agent(again)

    assert states(status) == {"cmdline.iommu": "Effective"}
    node.power()
    assert node.arguments().split() == ["ro", "quiet", "iommu=pt"]


@pytest.mark.parametrize("effect", range(HALVES - 1))
def test_wherever_the_agent_is_killed_arguments_that_no_boot_had_have_not_failed(node, effect):
    """Power is lost as well, and the node comes up with the arguments that GRUB gives it."""
    node.agent(spec("pt", grant="g-1"), effect)
    node.power()

    status = node.agent(spec("pt"))

    assert states(status)["cmdline.iommu"] in ("Effective", "PendingRestart")
