"""Faults between a client and its API server, each kind switchable, all of it repeatable by seed.

Faults hit only calls that come through a door as Setpoint or a person; nodes and controllers inside the simulation are
spared unless `hit_agents` is on.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from simfleet.apiserver.store import ApiError


class Outage(Exception):
    """The connection failed: refused, reset or timed out. There is no answer, and the write may have happened."""


class Impostor(Outage):
    """The certificate is not the one that callers trust. Through a socket, every handshake fails."""


@dataclass(slots=True)
class Rule:
    """Fails calls that match; an empty field matches everything."""

    outcome: str
    """throttle, error, conflict, refuse, unauthorized, impostor, timeout, lose (the call happens, its answer is lost),
    vanish (so does the API server, from this call on)."""
    verb: str = ""
    resource: str = ""
    subresource: str | None = None
    name: str = ""
    rate: float = 1.0
    """Share of matching calls, 0 to 1."""
    times: int | None = None
    """Calls left to hit; None: no end."""
    retry_after: int = 1
    """Seconds that a throttled caller is told to wait."""
    outage_seconds: float = 0.0
    """How long a server that vanished is away; 0: until `outage` is set False."""

    def matches(self, verb: str, resource: str, subresource: str, name: str) -> bool:
        return (
            self.times != 0
            and self.verb in ("", verb)
            and self.resource in ("", resource)
            and self.subresource in (None, subresource)
            and self.name in ("", name)
        )


class Faults:
    def __init__(self, seed: int = 0) -> None:
        self._random = random.Random(f"faults-{seed}")
        self.rules: list[Rule] = []
        self.outage = False
        """No call gets through, and open watches end."""
        self.latency = 0.0
        """Seconds each call takes. With a clock that is moved by hand it only shows where it exceeds a timeout."""
        self.watch_drop_rate = 0.0
        """Share of watch events after which the connection is cut."""
        self.bookmarks = True
        self.hit_agents = False

    def add(self, outcome: str, **fields: object) -> Rule:
        """Add a rule and return it, so that a test can look at how often it hit or take it away."""
        rule = Rule(outcome, **fields)  # type: ignore[arg-type]
        self.rules.append(rule)
        return rule

    def clear(self) -> None:
        self.rules.clear()
        self.outage, self.latency, self.watch_drop_rate, self.bookmarks = False, 0.0, 0.0, True

    def recover(self) -> None:
        """The API server is back."""
        self.outage = False

    def pick(self, verb: str, resource: str, subresource: str, name: str) -> Rule | None:
        """The first rule that hits this call; its `times` is spent."""
        for rule in self.rules:
            if rule.matches(verb, resource, subresource, name) and self._random.random() < rule.rate:
                if rule.times is not None:
                    rule.times -= 1
                return rule
        return None

    def drops_watch(self) -> bool:
        return self.outage or (self.watch_drop_rate > 0 and self._random.random() < self.watch_drop_rate)

    def before(self, rule: Rule) -> None:
        """Raise what the rule says instead of carrying the call out; `lose` lets it through first."""
        if rule.outcome == "vanish":
            self.outage = True
            raise Outage("simulated: the API server is gone")
        if rule.outcome == "throttle":
            raise ApiError(
                429, "TooManyRequests", "Too many requests, please try again later.", retry_after=rule.retry_after
            )
        if rule.outcome == "error":
            raise ApiError(500, "InternalError", "Internal error occurred: simulated: etcdserver: request timed out")
        if rule.outcome == "conflict":
            raise ApiError(
                409,
                "Conflict",
                "Operation cannot be fulfilled: the object has been modified; please apply your changes to the latest "
                "version and try again",
            )
        if rule.outcome == "refuse":
            # As a ValidatingAdmissionPolicy does: no authorizer's 403, which might be permitted a moment later.
            raise ApiError(422, "Invalid", "simulated: the policy refuses this call")
        if rule.outcome == "unauthorized":
            raise ApiError(401, "Unauthorized", "Unauthorized")
        if rule.outcome == "impostor":
            raise Impostor("simulated: the certificate is signed by an unknown authority")
        if rule.outcome == "timeout":
            raise Outage("simulated: the call timed out")

    @staticmethod
    def after(rule: Rule) -> None:
        if rule.outcome == "lose":
            raise Outage("simulated: the connection broke before the answer came")
