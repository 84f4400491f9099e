"""Rules that map what is held to teams: a list, of which the first match counts. Pure; written one rule a line.

    namespace training = Research
    namespace vision-* = Perception
    owner Job/nightly-* = Platform

A pattern is a whole name, or its beginning and `*`. What no rule matches is unassigned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from common.errors import Invalid

NAMESPACE, OWNER = "namespace", "owner"
WAYS: Mapping[str, str] = {NAMESPACE: "Namespace", OWNER: "Owner"}
MOST = 500
LONGEST = 317
_LINE = re.compile(r"(?P<by>\S+)\s+(?P<pattern>\S+)\s*=\s*(?P<team>\S.*)")
_NAME = r"[A-Za-z0-9]([-A-Za-z0-9.]*[A-Za-z0-9])?"
_NAMESPACE = re.compile(rf"{_NAME}|[A-Za-z0-9][-A-Za-z0-9.]*\*|\*")
_OWNER = re.compile(rf"[A-Z][A-Za-z0-9]*/({_NAME}|[A-Za-z0-9][-A-Za-z0-9.]*\*|\*)")


@dataclass(frozen=True, slots=True)
class Rule:
    by: str
    """One of WAYS."""
    pattern: str
    team: int
    """Its id."""

    def matches(self, namespace: str, owner: str) -> bool:
        text = namespace if self.by == NAMESPACE else owner
        if self.pattern.endswith("*"):
            return bool(text) and text.startswith(self.pattern[:-1])
        return text == self.pattern

    def covers(self, other: Rule) -> bool:
        """Return whether `other`, further down, never has its turn."""
        mine, theirs = self.pattern, other.pattern
        if self.by != other.by:
            return False
        return theirs.startswith(mine[:-1]) if mine.endswith("*") else mine == theirs


class RuleList:
    """Rules in their order."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = tuple(rules)
        self.needs_owner = any(rule.by == OWNER for rule in self.rules)
        self.team = lru_cache(maxsize=100_000)(self._team)

    def _team(self, namespace: str, owner: str = "") -> int | None:
        """Return the id of the team; None: unassigned."""
        return next((rule.team for rule in self.rules if rule.matches(namespace, owner)), None)

    def owners(self) -> set[str]:
        """Return the patterns of owners."""
        return {rule.pattern for rule in self.rules if rule.by == OWNER}

    def hidden(self) -> Iterable[tuple[int, int]]:
        """Yield (number of a rule that never has its turn, number of the one that takes all of its), from 1."""
        for place, rule in enumerate(self.rules):
            for before, other in enumerate(self.rules[:place]):
                if other.covers(rule):
                    yield place + 1, before + 1
                    break


def stored(rows: Sequence[Mapping[str, Any]]) -> RuleList:
    return RuleList(Rule(row["by"], row["pattern"], row["team"]) for row in rows)


def as_rows(rules: RuleList) -> list[dict[str, Any]]:
    return [{"by": rule.by, "pattern": rule.pattern, "team": rule.team} for rule in rules.rules]


def as_text(rules: RuleList, teams: Mapping[int, str]) -> str:
    return "".join(f"{rule.by} {rule.pattern} = {teams.get(rule.team, '?')}\n" for rule in rules.rules)


def lines(text: str) -> list[dict[str, str]]:
    """Return the rules of a text as REST takes them. Empty lines are left out. Raises Invalid, naming the lines."""
    rows, wrong = [], []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            wrong.append(f"Line {number}: write a rule such as: namespace vision-* = Perception")
        else:
            rows.append(match.groupdict())
    if wrong:
        raise Invalid("The rules cannot be saved so.", fields={"rules": wrong[:20]})
    return rows


def parsed(rows: Sequence[Mapping[str, str]], teams: Mapping[str, int]) -> RuleList:
    """Judge rules that name teams. Raises Invalid, naming each rule by its number."""
    if len(rows) > MOST:
        raise Invalid("The rules cannot be saved so.", fields={"rules": [f"At most {MOST} rules."]})
    rules: list[Rule] = []
    wrong = []
    for number, row in enumerate(rows, 1):
        if reason := _objection(row, teams):
            wrong.append(f"Rule {number}: {reason}")
        else:
            rules.append(Rule(row["by"], row["pattern"], teams[row["team"].strip()]))
    result = RuleList(rules)
    if not wrong:
        wrong = [
            f"Rule {number}: rule {other} before it takes all that it matches." for number, other in result.hidden()
        ]
    if wrong:
        raise Invalid("The rules cannot be saved so.", fields={"rules": wrong[:20]})
    return result


def _objection(row: Mapping[str, str], teams: Mapping[str, int]) -> str:
    by, pattern, team = row["by"], row["pattern"], row["team"].strip()
    if by not in WAYS:
        return f"begin with {' or '.join(WAYS)}, not {by[:40]!r}."
    if len(pattern) > LONGEST:
        return f"a pattern has at most {LONGEST} characters."
    if by == NAMESPACE and not _NAMESPACE.fullmatch(pattern):
        return f"{pattern[:80]!r} is neither a namespace nor the beginning of one with * at its end."
    if by == OWNER and not _OWNER.fullmatch(pattern):
        return f"{pattern[:80]!r} is no owner: write Kind/name, or Kind/ and the beginning of a name with * at its end."
    if team not in teams:
        known = ", ".join(sorted(teams)[:20]) or "none yet"
        return f"there is no team {team[:63]!r}; there are {known}."
    return ""
