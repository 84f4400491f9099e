"""Law 6 for components: delivered twice, or killed anywhere, nothing happens twice."""

from __future__ import annotations

import pytest
from django.conf import settings
from django.db import InterfaceError

from common.clock import now
from jobs.diffs import dependency_graph
from jobs.engine import claims, component_runner, reconcile
from jobs.engine.stages import component_stages
from tests.jobs.component_steps import plan_of, step_of


class Killed(BaseException):
    """Kill -9 in the middle of a step: no handler of the code under test may catch it."""


def test_delivered_twice_helm_runs_once(world, releases):
    rollout = world.started(plan_of(world, "cert-manager"))
    reconcile.run(rollout.pk)
    pk = step_of(rollout, "cert-manager").pk

    def again(stop):
        assert component_runner.carry_out(pk) is None
        reconcile.advance(rollout.pk)

    releases.during["cert-manager"] = again
    component_runner.carry_out(pk)
    component_runner.carry_out(pk)

    assert releases.runs == {("cert-manager", "forward"): 1}
    assert world.run(rollout).status == "succeeded"


def test_a_worker_killed_inside_helm_costs_a_lease_and_the_next_attempt_mends(world, releases, monkeypatch):
    rollout = world.started(plan_of(world, "cert-manager"))
    reconcile.run(rollout.pk)
    pk = step_of(rollout, "cert-manager").pk

    def die(stop):
        del releases.during["cert-manager"]
        raise Killed

    releases.during["cert-manager"] = die
    with monkeypatch.context() as patch:
        patch.setattr(claims, "release", lambda token: None)  # a killed process cannot give its claims back
        with pytest.raises(Killed):
            component_runner.carry_out(pk)
    assert releases.there["cert-manager"].pending == "pending-install"
    assert component_runner.carry_out(pk) is None, "somebody may still be at it"

    world.clock.forward(settings.SETPOINT_LEASE_SECONDS + 1)
    assert component_runner.carry_out(pk)
    assert not releases.there["cert-manager"].pending
    assert world.run(rollout).status == "succeeded"
    assert releases.writes == [("cert-manager", "1.0.0")]


LINES = 120
"""More than one carrying and one slice have in jobs/engine, each line of which kills one run."""


def test_killed_at_any_line_the_rollout_goes_on_within_a_lease(world, releases, monkeypatch):
    """One rollout, killed over and over: at the first line of the engine's files, then at the second, and so on."""
    import sys

    watched = {module.__file__ for module in (component_runner, component_stages, dependency_graph)}
    release = claims.release
    monkeypatch.setattr(claims, "release", lambda token: None)
    rollout = world.started(plan_of(world, "kueue", "cert-manager"))
    lines, killed = 0, 0

    def tracing(at):
        count = 0

        def trace(frame, event, arg):
            nonlocal count
            if frame.f_code.co_filename not in watched:
                return None
            if event == "line":
                count += 1
                if count == at:
                    raise Killed
            return trace

        return trace

    for at in range(1, 4000, 7):
        before = sys.gettrace()
        sys.settrace(tracing(at))
        try:
            reconcile.run(rollout.pk)
            for pk in component_runner.due_steps(rollout.pk):
                component_runner.carry_out(pk)
        except Killed:
            killed += 1
        finally:
            sys.settrace(before)
        world.tick(settings.SETPOINT_LEASE_SECONDS + 1)
        rollout.refresh_from_db()
        lines = at
        if not rollout.is_live:
            break
    monkeypatch.setattr(claims, "release", release)
    world.run(rollout, seconds=300)

    assert killed > 10, (killed, lines)
    assert rollout.status == "succeeded"
    assert releases.writes == [("cert-manager", "1.0.0"), ("kueue", "1.0.0")]


def test_a_lost_claim_ends_helm(world, releases):
    rollout = world.started(plan_of(world, "cert-manager"))
    reconcile.run(rollout.pk)
    step = step_of(rollout, "cert-manager")
    token, taken = claims.claim_for_helm(step.pk)
    renewal = component_runner.ClaimRenewal(taken, token)
    renewal.beat()
    assert not renewal.is_over()
    step.refresh_from_db()
    assert step.lease_until > now()

    claims.release(token)
    renewal.beat()
    assert renewal.is_over()


def test_a_database_that_goes_away_ends_helm_only_with_the_lease(world, releases, monkeypatch):
    """Django's InterfaceError is no DatabaseError; what a restarted PostgreSQL leaves is a connection to be closed."""
    rollout = world.started(plan_of(world, "cert-manager"))
    reconcile.run(rollout.pk)
    token, taken = claims.claim_for_helm(step_of(rollout, "cert-manager").pk)
    renewal, closed, real = component_runner.ClaimRenewal(taken, token), [], claims.renew

    def gone(*_: object) -> bool:
        raise InterfaceError("connection already closed")

    monkeypatch.setattr(component_runner, "close_old_connections", lambda: closed.append(True))
    monkeypatch.setattr(claims, "renew", gone)
    renewal.beat()
    assert (renewal.is_over(), closed) == (False, [True])
    monkeypatch.setattr(claims, "renew", real)
    renewal.beat()
    assert not renewal.is_over()

    monkeypatch.setattr(claims, "renew", gone)
    world.clock.forward(settings.SETPOINT_LEASE_SECONDS + 1)
    renewal.beat()
    assert renewal.why == "its lease could not be renewed in time"


def test_helm_does_not_go_on_without_whoever_keeps_its_claim(world, releases, monkeypatch):
    def broken(_: object) -> None:
        raise RuntimeError("a mistake of ours")

    monkeypatch.setattr(component_runner, "SHOWS_EVERY_SECONDS", 0.01)
    monkeypatch.setattr(component_runner.ClaimRenewal, "beat", broken)
    rollout = world.started(plan_of(world, "cert-manager"))
    reconcile.run(rollout.pk)
    stopped: list[bool] = []

    def while_it_runs(stop):
        import time

        until = time.monotonic() + 10
        while not stop() and time.monotonic() < until:
            time.sleep(0.01)
        stopped.append(stop())

    releases.during["cert-manager"] = while_it_runs
    component_runner.carry_out(step_of(rollout, "cert-manager").pk)

    assert stopped == [True]


def test_a_thread_keeps_the_claim_while_helm_runs_and_shows_what_it_says(world, releases, monkeypatch):
    monkeypatch.setattr(component_runner, "SHOWS_EVERY_SECONDS", 0.01)
    beats: list[list[str]] = []
    monkeypatch.setattr(component_runner.ClaimRenewal, "beat", lambda self: beats.append(self.lines()))
    rollout = world.started(plan_of(world, "cert-manager"))
    reconcile.run(rollout.pk)

    def while_it_runs(stop):
        import time

        until = time.monotonic() + 10
        while not any(beats) and time.monotonic() < until:
            time.sleep(0.01)

    releases.during["cert-manager"] = while_it_runs
    component_runner.carry_out(step_of(rollout, "cert-manager").pk)

    assert ["cert-manager: from nothing to 1.0.0"] in beats
    assert step_of(rollout, "cert-manager").output == ["cert-manager: from nothing to 1.0.0"]
