"""A process that is the agent on a node of plain files, and that may be killed at any of its effects, as by kill -9.

`python power_cut.py FOLDER SPEC_FILE EFFECT`: carries out the spec, spends its restart grant, and prints the status as
JSON. EFFECT n: SIGKILL before the n-th effect when n is even, after it when odd, counting from 0 in halves; -1: never.
An effect is a save of the journal, a file made to last, or a command.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))

from agent.host import Command, CommandResult, LinuxHost
from agent.journal import FileStore, Journal
from agent.reconcile import Reconciler
from agent.restarts import Confirmed
from contract.nodetuning import Spec


class Fuse:
    def __init__(self, halves: int) -> None:
        self._left = halves

    def step(self) -> None:
        if self._left == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        self._left -= 1


class FusedStore(FileStore):
    def __init__(self, path: str, fuse: Fuse) -> None:
        super().__init__(path)
        self._fuse = fuse

    def save(self, text: str) -> None:
        self._fuse.step()
        super().save(text)
        self._fuse.step()


class FusedHost(LinuxHost):
    def __init__(self, folder: str, fuse: Fuse) -> None:
        super().__init__(root=f"{folder}/root", proc=f"{folder}/proc", sys=f"{folder}/sys", init_pid=None)
        self._fuse = fuse

    def persist(self, path: str, text: str | None, *, executable: bool = False) -> None:
        self._fuse.step()
        super().persist(path, text, executable=executable)
        self._fuse.step()

    def run(self, command: Command, *words: str) -> CommandResult:
        self._fuse.step()
        ran = super().run(command, *words)
        self._fuse.step()
        return ran


def main(folder: str, spec_file: str, effect: str) -> None:
    fuse = Fuse(int(effect))
    spec = Spec.from_json(json.loads(pathlib.Path(spec_file).read_text()))
    journal = Journal(FusedStore(f"{folder}/journal", fuse))
    core = Reconciler(FusedHost(folder, fuse), journal, time.time, node_uid="uid-1", agent_version="test")
    status = core.reconcile(spec, 1)
    status = core.restart(lambda: Confirmed(spec, 0.0), lambda announced: None) or status
    print(json.dumps(status.to_json()))


if __name__ == "__main__":
    main(*sys.argv[1:])
