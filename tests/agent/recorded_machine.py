"""A recorded machine laid out in a temporary folder, for the agent's own LinuxHost to work on.

The files are plain ones, so what the kernel does with a written value is played here, and only that: a chosen word
gets its brackets, huge pages are spread over NUMA nodes, and what is not offered or not writable is refused.
"""

from __future__ import annotations

import errno
import json
import os
import pathlib

from agent.host import LinuxHost

RECORDS = pathlib.Path(__file__).parent / "recorded"


def lay_out(name: str, folder: pathlib.Path) -> None:
    """Make files and links of `recorded/<name>.txt` under folder/proc and folder/sys, and an empty folder/root."""
    (folder / "root").mkdir(parents=True)
    lines = [line for line in (RECORDS / f"{name}.txt").read_text().splitlines() if not line.startswith("#")]
    for line in (line for line in lines if " -> " in line):
        place, _, target = line.partition(" -> ")
        link = folder / place.lstrip("/")
        link.parent.mkdir(parents=True, exist_ok=True)
        (link.parent / target).mkdir(parents=True, exist_ok=True)
        link.symlink_to(target)
    for line in (line for line in lines if " -> " not in line):
        mode, place, content = line.split(" ", 2)
        file = folder / place.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.loads(content))
        file.chmod(int(mode, 8))


class RecordedHost(LinuxHost):
    def __init__(self, folder: pathlib.Path) -> None:
        super().__init__(root=str(folder / "root"), proc=str(folder / "proc"), sys=str(folder / "sys"), init_pid=None)
        self.written: list[tuple[str, str]] = []

    def file(self, path: str) -> pathlib.Path:
        return pathlib.Path(self._place(path))

    def write_text(self, path: str, value: str) -> None:
        file = self.file(path)
        before = file.read_text() if file.exists() else ""
        if file.exists() and not file.stat().st_mode & 0o200:
            raise OSError(errno.EACCES, "Permission denied")  # as sysfs does, even for root
        answer = self._answer(path, before, value)
        super().write_text(path, value)
        file.write_text(answer + "\n")
        self.written.append((path, value))
        if path.endswith("/nr_hugepages"):
            self._spread(path, int(value))

    def _answer(self, path: str, before: str, value: str) -> str:
        name = path.rpartition("/")[2]
        offered = before.replace("[", " ").replace("]", " ").split() if "[" in before else []
        if name == "scheduler" and not offered:
            offered = before.split()  # a device without a choice
        if name == "scaling_governor":
            offered = self.file(path.replace("_governor", "_available_governors")).read_text().split()
        if offered and value not in offered:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))
        return " ".join(f"[{w}]" if w == value else w for w in offered) if "[" in before else value

    def _spread(self, path: str, count: int) -> None:
        """The whole-node file divides among the nodes, a node's file changes the sum."""
        size = path.split("/")[-2]
        nodes = self.glob(f"/sys/devices/system/node/node[0-9]*/hugepages/{size}/nr_hugepages")
        if path.startswith("/sys/kernel/mm"):
            for number, node in enumerate(nodes):
                share = count // len(nodes) + (1 if number < count % len(nodes) else 0)
                self.file(node).write_text(f"{share}\n")
        total = sum(int(self.file(node).read_text()) for node in nodes)
        self.file(f"/sys/kernel/mm/hugepages/{size}/nr_hugepages").write_text(f"{total}\n")
