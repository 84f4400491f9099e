"""Record what the agent sees of a machine: `python tests/agent/recorded/record.py > tests/agent/recorded/NAME.txt`.

Reads only. One line for each file of /proc and /sys that the agent looks at, with its mode and content, and one for
each link on the way to it. What tells machines apart is left out: processes, the boot id, other kernel arguments.
"""

from __future__ import annotations

import json
import os
import pathlib
import stat
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[3]))

from agent.host import LinuxHost
from agent.journal import FileStore, Journal
from agent.kinds import handlers
from agent.kinds.lifeline import Lifeline
from contract import key_lists, keys, nics

NODES = "/sys/devices/system/node/node[0-9]*"
ALSO = ("/proc/sys/kernel/osrelease", "/proc/sys/kernel/random/boot_id", "/proc/meminfo", "/proc/cmdline")
NEIGHBORS = {"scaling_governor": "scaling_available_governors", "initstate": "refcnt"}


class Listener(LinuxHost):
    """The real host, which remembers what was asked of it."""

    def __init__(self) -> None:
        super().__init__(root="/")
        self.asked: set[str] = set(ALSO)

    def read_text(self, path: str) -> str | None:
        text = super().read_text(path)
        if text is not None and path.startswith(("/proc/sys/", "/sys/")):
            self.asked.add(path)
            for name, neighbor in NEIGHBORS.items():
                if path.endswith(f"/{name}"):
                    self.read_text(path.removesuffix(name) + neighbor)
        return text


def links_to(path: str) -> list[str]:
    parts = pathlib.PurePosixPath(path).parents
    return [f"{parent} -> {os.readlink(parent)}" for parent in parts if os.path.islink(parent)]


def content(path: str) -> str:
    text = pathlib.Path(path).read_text(errors="replace")
    if path.endswith("/boot_id"):
        return "00000000-0000-4000-8000-000000000001\n"
    if path == "/proc/cmdline":
        kept = [word for word in text.split(" -- ")[0].split() if word.partition("=")[0] in key_lists.ALLOWED_CMDLINE]
        return " ".join(["ro", "quiet", *kept]) + "\n"
    return text.splitlines(keepends=True)[0] if path == "/proc/meminfo" else text


def main() -> None:
    host, kinds = Listener(), handlers(Journal(FileStore("/nowhere/journal")), Lifeline())
    nodes = [path.rpartition("/")[2] for path in host.glob(NODES)]
    pools = {f"hugepages-{size}.{node}" for size in ("2Mi", "1Gi") for node in nodes}
    for key in (key_lists.ALLOWED | pools) - nics.KEYS:  # most of a network card is in no file
        try:
            kinds[keys.kind_of(key)].read(host, key)
        except OSError as error:
            print(f"# {key}: {error}")
    for line in sorted({link for path in host.asked for link in links_to(path)}):
        print(line)
    for path in sorted(host.asked):
        try:
            print(f"{stat.S_IMODE(os.stat(path).st_mode):04o} {path} {json.dumps(content(path))}")
        except OSError as error:
            print(f"# {path}: {error.strerror}")


if __name__ == "__main__":
    main()
