"""Network cards on the kernel of the machine that runs the tests, in a network namespace of the test's own.

The kernel has no card to spare, so a veth of the namespace is shown to the agent as one: its files and its driver are
the kernel's, and only `device`, by which cards are told from veths, is the test's.
"""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.full
ROOT = pathlib.Path(__file__).parents[3]

IN_A_NAMESPACE = """
    import json, os, pathlib, subprocess, sys
    sys.path.insert(0, {root!r})
    from agent.host import LinuxHost
    from agent.journal import FileStore, Journal
    from agent.kinds.lifeline import Lifeline
    from agent.reconcile import Reconciler
    from contract.nodetuning import Restore, Spec, Wanted

    folder = pathlib.Path({folder!r})
    def run(words):
        subprocess.run(words.split(), check=True)

    for words in ("link add up0 type veth peer name peer0", "link set up0 up", "link set peer0 up",
                  "link add side0 type veth peer name peer1", "address add 192.0.2.2/24 dev up0",
                  "route add default via 192.0.2.1 dev up0"):
        run("ip " + words)
    kernels, shown = folder / "kernels", folder / "sys"
    kernels.mkdir()
    run(f"mount -t sysfs none {{kernels}}")
    for name in ("up0", "side0"):
        (shown / f"class/net/{{name}}/device").mkdir(parents=True)
        for file in ("mtu", "carrier"):
            (shown / f"class/net/{{name}}/{{file}}").symlink_to(kernels / f"class/net/{{name}}/{{file}}")
    host = LinuxHost(root=str(folder / "root"), sys=str(shown), init_pid=None)
    cut = [False]

    def reaches():
        return not cut[0] or host.read_text("/sys/class/net/up0/mtu") == "1500\\n"

    generation = [0]
    def core():
        made = Reconciler(host, Journal(FileStore(str(folder / "journal"))), lambda: 0.0, node_uid="u",
                          agent_version="t", lifeline=Lifeline(reaches))
        made.recover()
        return made
    def ask(*settings, restore=()):
        generation[0] += 1
        status = core().reconcile(Spec("u", "apply", settings=settings, restore=restore), generation[0])
        return [[s.key, s.state, s.reason] for s in status.settings]
    def now():
        places = ("/sys/class/net/up0/mtu", "/nic/up0/tso", "/sys/class/net/side0/mtu", "/nic/up0/mtu_max")
        return [host.read_text(place).strip() for place in places]

    MTU, TSO = "nic.default-route.mtu", "nic.default-route.tso"
    out = [now()]
    out += [ask(Wanted(MTU, "=", "9000", "1500"), Wanted(TSO, "=", "0", "1")), now()]
    out += [ask(restore=(Restore(MTU, "1500", "9000"), Restore(TSO, "1", "0"))), now()]
    out += [ask(Wanted("nic.default-route.rx_ring", "=", "512", None))]
    out += [ask(Wanted(MTU, "=", "65536", "1500")), now()]
    cut[0] = True
    out += [ask(Wanted(MTU, "=", "9000", "1500")), now()]
    print(json.dumps(out))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="a network namespace with interfaces of its own needs root")
def test_cards_are_changed_put_back_and_taken_back_by_the_kernel_s_own_interfaces(tmp_path):
    code = textwrap.dedent(IN_A_NAMESPACE.format(root=str(ROOT), folder=str(tmp_path)))
    ran = subprocess.run(
        ["unshare", "--net", "--mount", sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    before, applied, during, restored, after, rings, beyond, still, cut, taken_back = json.loads(ran.stdout)

    assert before == ["1500", "1", "1500", "65535"]
    assert [state for _, state, _ in applied] == ["Effective", "Effective"], applied
    assert during == ["9000", "0", "1500", "65535"], "the other card is of another class"
    assert [state for _, state, _ in restored] == ["Restored", "Restored"], restored
    assert after == before
    assert rings[0][1] == "Unsupported", "a veth has no rings"
    assert beyond[0][1] == "Failed"
    assert "65536 is more than 65535" in beyond[0][2]
    assert still == before
    assert cut[0][1] == "Failed"
    assert "so 1500 was put back" in cut[0][2]
    assert taken_back == before
