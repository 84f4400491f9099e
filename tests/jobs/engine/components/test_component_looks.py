"""Readiness of a component is checked look by look, and never by waiting inside one."""

from __future__ import annotations

from typing import Any

import pytest

from tests.jobs.releases import Releases, wanted


@pytest.fixture
def releases(monkeypatch: Any) -> Releases:
    return Releases().install(monkeypatch)


def test_what_must_hold_is_believed_after_two_looks_in_a_row(world, releases):
    releases.reads["volcano"] = ["ready", "ClusterPolicy main: status.state is notReady.", "ready", "ready"]
    rollout = world.run(world.started(world.plan(world.revision({}, components=wanted("volcano")))))

    assert rollout.status == "succeeded"
    assert releases.reads["volcano"] == [], "one look too few"
