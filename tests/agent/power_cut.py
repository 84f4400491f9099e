"""A process that is the agent on a node of plain files, and that may be killed at any of its effects, as by kill -9.

`python power_cut.py FOLDER SPEC_FILE EFFECT`: carries out the spec, spends its restart grant, and prints the status as
JSON. EFFECT n: SIGKILL before the n-th effect when n is even, after it when odd, counting from 0 in halves; -1: never.
An effect is a save of the journal, a file made to last, or a command.

Without arguments it serves `live`: forks of a process that has loaded the agent, which takes most of a life.
"""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from functools import cache
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parents[2]))

from agent.host import Command, CommandResult, LinuxHost
from agent.journal import FileStore, Journal
from agent.reconcile import Reconciler
from agent.restarts import Confirmed
from contract.nodetuning import Spec

MOST_SECONDS = 60


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


def serve() -> None:
    """Fork for each line, which asks for one life of the agent, and answer with how it ended and what it wrote."""
    for line in sys.stdin:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = os.fork()
            if not process:
                _live(json.loads(line), out.fileno(), err.fileno())
            status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
            written = [file.read().decode() for file in (out, err) if not file.seek(0)]
        print(json.dumps([status, *written]), flush=True)


def _live(request: dict[str, Any], out: int, err: int) -> None:
    """Be the agent as a process of its own would be; never returns."""
    status = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out, 1)
        os.dup2(err, 2)
        os.chdir(request["directory"])
        os.environ.clear()
        os.environ.update(request["environment"])
        signal.alarm(request["seconds"])
        main(*request["arguments"])
        status = 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def live(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the agent once, in this process's environment, to its end or until it is killed."""
    request = {
        "arguments": arguments,
        "environment": dict(os.environ),
        "directory": os.getcwd(),
        "seconds": MOST_SECONDS,
    }
    server = _server()
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    status, out, err = json.loads(server.stdout.readline())
    return subprocess.CompletedProcess(arguments, status, out, err)


@cache
def _server() -> subprocess.Popen[str]:
    """Start it once; it ends with this process, whose end of the pipe closes."""
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, "-S", __file__], stdin=pipe, stdout=pipe, text=True)


if __name__ == "__main__":
    main(*sys.argv[1:]) if sys.argv[1:] else serve()
