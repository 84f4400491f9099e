"""A signal is received at any point of the main thread's work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = """
import signal, sys
from common.stopping import at_signals

stop = at_signals()
with stop._cond:  # as in the middle of the Event's own wait
    for _ in range(2):
        signal.raise_signal(getattr(signal, sys.argv[1]))
print(stop.wait(10))
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
def test_a_signal_in_the_middle_of_the_wait_is_heard(name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE, name], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr
