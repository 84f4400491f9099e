"""A signal is received at any point of the main thread's work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
IN_THE_MIDDLE = """
import signal, sys
from common.stopping import at_signals

stop = at_signals()
with stop._cond:  # as in the middle of the Event's own wait
    for _ in range(2):
        signal.raise_signal(getattr(signal, sys.argv[1]))
print(stop.wait(10))
"""
HANDLERS_DO_NOT_RUN = """
import os, signal, sys, threading
from common.stopping import at_signals

stop = at_signals()
number = getattr(signal, sys.argv[1])
is_masked = threading.Event()
threading.Thread(target=lambda: is_masked.wait() and os.kill(os.getpid(), number), daemon=True).start()
signal.pthread_sigmask(signal.SIG_BLOCK, {number})  # another thread receives it, and wakes nobody
is_masked.set()
print(stop.wait())
"""


@pytest.mark.parametrize("name", ["SIGTERM", "SIGINT"])
@pytest.mark.parametrize("code", [IN_THE_MIDDLE, HANDLERS_DO_NOT_RUN])
def test_a_signal_is_heard_wherever_the_main_thread_is(code: str, name: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code, name], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


def test_another_signal_ends_nothing() -> None:
    code = """
import signal
from common.stopping import at_signals

stop = at_signals()
signal.signal(signal.SIGUSR1, lambda *_: None)
signal.raise_signal(signal.SIGUSR1)
print(stop.wait(0.2))
signal.raise_signal(signal.SIGTERM)
print(stop.wait(10))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "False\nTrue\n", done.stderr
