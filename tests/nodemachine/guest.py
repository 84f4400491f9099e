"""The inside of a machine in QEMU, through its guest agent: a serial line that needs no network of the machine.

`python -m tests.nodemachine.guest FOLDER WORD...` runs a command inside and prints its output.
"""

from __future__ import annotations

import base64
import itertools
import json
import os
import shlex
import socket
import sys
import time
from pathlib import Path
from typing import Any

ANSWER_SECONDS = 180.0
MODULE = "tests.nodemachine.guest"


class MachineError(RuntimeError):
    """The machine does not answer, or a command in it failed."""


class Guest:
    """Commands and files inside the machine whose sockets are in `folder`."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self._ids = itertools.count(os.getpid() << 16)
        """Differ between processes: a late answer to another one is not taken for ours."""

    def run(self, *words: str, seconds: float = ANSWER_SECONDS) -> str:
        """Output of a command inside, as root, stripped. Raises MachineError with what it printed."""
        arguments = {"path": words[0], "arg": list(words[1:]), "capture-output": True}
        deadline = time.monotonic() + seconds
        pid = self._ask("guest-exec", arguments)["pid"]
        while not (done := self._ask("guest-exec-status", {"pid": pid}))["exited"]:
            if time.monotonic() > deadline:
                raise MachineError(f"{self.name}: {' '.join(words)} takes longer than {seconds:.0f} s")
            time.sleep(0.1)
        out, err = (base64.b64decode(done.get(name, "")).decode(errors="replace") for name in ("out-data", "err-data"))
        if done.get("exitcode") != 0:
            raise MachineError(f"{self.name}: {' '.join(words)}: {out[-2000:]}{err[-2000:]}")
        return out.strip()

    def shell(self, script: str, *, seconds: float = ANSWER_SECONDS) -> str:
        return self.run("/bin/sh", "-ec", script, seconds=seconds)

    def read(self, path: str) -> str:
        return self.run("/bin/cat", path)

    def write(self, path: str, text: str) -> None:
        """Write a file inside by hand, as an operator would with `echo`."""
        self.shell(f"printf %s {shlex.quote(text)} > {path}")

    def _ask(self, command: str, arguments: dict[str, Any], *, patience: float = ANSWER_SECONDS) -> dict[str, Any]:
        """Ask the guest agent, on a connection of its own: an answer that came too late is never taken for the next."""
        number = next(self._ids)
        sync = {"execute": "guest-sync-delimited", "arguments": {"id": number}}
        try:
            with socket.socket(socket.AF_UNIX) as line:
                line.settimeout(patience)
                line.connect(str(self.folder / "agent.sock"))
                line.sendall(b"\xff" + json.dumps(sync).encode() + b"\n")
                heard = line.makefile("rb")
                while True:
                    first = heard.readline().rpartition(b"\xff")[2]
                    if first and json.loads(first).get("return") == number:
                        break
                line.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
                answer = json.loads(heard.readline())
        except (OSError, ValueError) as error:
            raise MachineError(f"{self.name} does not answer: {error}") from error
        if "error" in answer:
            raise MachineError(f"{self.name}: {command}: {answer['error'].get('desc')}")
        return dict(answer["return"])


if __name__ == "__main__":
    print(Guest(Path(sys.argv[1]), Path(sys.argv[1]).name).run(*sys.argv[2:]))
