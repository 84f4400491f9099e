"""Rules of teams as conditions of the database: rows that may be a team's. Which of them are, rules say, in order."""

from __future__ import annotations

from django.db.models import Q

from gpus.showback.rules import NAMESPACE, Rule, RuleList

NONE = Q(pk__in=[])


def held_by(team: int, rules: RuleList) -> Q:
    """Return a condition on `namespace` and `owner`, which holds for each row of the team's and for some others."""
    return _joined(team, rules, {rule: _like("owner", rule.pattern) for rule in _by_owner(team, rules)})


def pods_of(team: int, rules: RuleList) -> Q:
    """The same of pods, whose owner is `owner_kind` and `owner_name`."""
    return _joined(team, rules, {rule: _kind(rule, "owner_kind", "owner_name") for rule in _by_owner(team, rules)})


def jobs_of(team: int, rules: RuleList) -> Q:
    """The same of jobs, which have `controllers`, and `kind` and `name` themselves."""
    owners = {
        rule: _kind(rule, "kind", "name") | Q(controllers__contains=_line(rule.pattern))
        for rule in _by_owner(team, rules)
    }
    return _joined(team, rules, owners)


def _by_owner(team: int, rules: RuleList) -> list[Rule]:
    return [rule for rule in rules.rules if rule.team == team and rule.by != NAMESPACE]


def _joined(team: int, rules: RuleList, owners: dict[Rule, Q]) -> Q:
    spaces = [rule.pattern for rule in rules.rules if rule.team == team and rule.by == NAMESPACE]
    exact = [pattern for pattern in spaces if not pattern.endswith("*")]
    condition = Q(namespace__in=exact) if exact else NONE
    for pattern in spaces:
        if pattern.endswith("*"):
            condition |= _like("namespace", pattern)
    for of_owner in owners.values():
        condition |= of_owner
    return condition


def _line(pattern: str) -> str:
    return "\n" + (pattern[:-1] if pattern.endswith("*") else f"{pattern}\n")


def _like(column: str, pattern: str) -> Q:
    return Q(**{f"{column}__startswith": pattern[:-1]}) if pattern.endswith("*") else Q(**{column: pattern})


def _kind(rule: Rule, kind: str, name: str) -> Q:
    of_kind, _, pattern = rule.pattern.partition("/")
    return Q(**{kind: of_kind}) & _like(name, pattern)
