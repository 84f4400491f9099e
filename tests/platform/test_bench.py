"""The benches' own parts: what they measure with works, and what dies is reported at once."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from bench.agents import Kernel
from bench.rollout import SETTINGS, Campaign
from contract.nodetuning import Spec, Status, Wanted


def test_the_agents_of_the_benches_write_what_they_are_asked():
    kernel = Kernel()
    seen = kernel.answer(Spec("uid-1", mode="observe", observe=tuple(SETTINGS)), "uid-1", 2)
    settings = tuple(
        Wanted(key, "=", str(start + 1), Status.from_json(seen).observed[key]) for key, start in SETTINGS.items()
    )

    status = kernel.answer(Spec("uid-1", mode="apply", settings=settings), "uid-1", 3)

    assert {setting["state"] for setting in status["settings"]} == {"Effective"}, status["settings"]
    assert (status["nodeUID"], status["observedGeneration"]) == ("uid-1", 3)


def test_a_bench_whose_agents_died_says_why_and_does_not_wait(tmp_path):
    (tmp_path / "agents.log").write_text("AttributeError: no clock")
    campaign = Campaign(SimpleNamespace(installation=SimpleNamespace(folder=tmp_path)))
    campaign._agents = subprocess.Popen([sys.executable, "-c", ""])
    campaign._agents.wait(60)

    with pytest.raises(RuntimeError, match="the agents ended: AttributeError: no clock"):
        campaign._until(lambda: False, lambda: "")
