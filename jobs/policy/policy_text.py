"""Text of an approval policy: YAML with a time zone and rules, each with a condition and what it demands."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError, available_timezones

from accounts.models import RoleBinding
from accounts.permissions import check_scope
from common import yaml
from common.errors import Invalid
from jobs.policy import conditions
from jobs.policy.conditions import BadCondition, Condition
from jobs.policy.fact_types import FACTS_VERSION

MOST_BYTES = 32 * 1024
MOST_RULES = 50
MOST_APPROVERS = 10
NAME_CHARACTERS, MESSAGE_CHARACTERS = 80, 200
ROLES = (RoleBinding.Role.APPROVER, RoleBinding.Role.OPERATOR, RoleBinding.Role.ADMIN)
TOP = ("facts", "zone", "rules")
RULE = ("name", "when", "refuse", "require")
REQUIRE = ("approvers", "of_count", "of_role", "of_scope", "owners", "fresh_login")
EMPTY = f"facts: {FACTS_VERSION}\nzone: UTC\nrules: []\n"


@dataclass(frozen=True, slots=True)
class PolicyRule:
    """A rule: for plans of which `when` holds, it refuses, or demands approvers or a recent log-in, or both."""

    name: str
    when: Condition
    refuse: str = ""
    approvers: int = 0
    of_count: int = 0
    of_role: str = ""
    of_scope: str = ""
    owners: bool = False
    """An approver of each team that owns what the plan touches."""
    fresh_login: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    zone: ZoneInfo
    rules: tuple[PolicyRule, ...]

    @property
    def names(self) -> frozenset[str]:
        """Facts that its conditions name."""
        return frozenset().union(*(rule.when.names for rule in self.rules))


def digest(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


@lru_cache(maxsize=32)
def read(text: str) -> Policy:
    """Return the policy of a text. Raises Invalid; each message at `text` names the rule and the place."""
    try:
        document = yaml.load(text, max_bytes=MOST_BYTES)
    except yaml.BadYaml as error:
        where = f"Line {error.line}: " if error.line else ""
        raise _invalid([f"{where}{error.reason}."]) from error
    reader = _Reader(document)
    policy = reader.policy()
    if reader.errors:
        raise _invalid(reader.errors)
    assert policy is not None
    return policy


def _invalid(errors: list[str]) -> Invalid:
    return Invalid("The policy is not valid.", fields={"text": errors[:20]})


class _Reader:
    """Reads the document and collects what is wrong with it, each with its line."""

    def __init__(self, document: yaml.YamlDocument) -> None:
        self.document, self.errors = document, list[str]()

    def policy(self) -> Policy | None:
        data = self.document.data
        if not isinstance(data, Mapping):
            self._wrong((), f"A policy has the keys {', '.join(TOP)}.")
            return None
        self._refuse_unknown(data, TOP, ())
        if data.get("facts") != FACTS_VERSION:
            self._wrong(("facts",), f"`facts: {FACTS_VERSION}` is the version of the facts that rules can name here.")
        zone = self._zone(data.get("zone"))
        rows = data.get("rules")
        if not isinstance(rows, list) or len(rows) > MOST_RULES:
            self._wrong(("rules",), f"`rules` is a list of at most {MOST_RULES} rules; it may be empty.")
            return None
        rules = [self._rule(row, ("rules", number)) for number, row in enumerate(rows)]
        names = [rule.name for rule in rules if rule is not None]
        for number, rule in enumerate(rules):
            if rule is not None and names.count(rule.name) > 1:
                self._wrong(("rules", number, "name"), f"“{rule.name}” is the name of another rule, too.")
        return Policy(zone, tuple(rule for rule in rules if rule is not None))

    def _zone(self, name: Any) -> ZoneInfo:
        try:
            if isinstance(name, str) and name in available_timezones():
                return ZoneInfo(name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            pass
        self._wrong(("zone",), "`zone` is an IANA time zone, such as Europe/Berlin or UTC.")
        return ZoneInfo("UTC")

    def _rule(self, row: Any, path: tuple[str | int, ...]) -> PolicyRule | None:
        if not isinstance(row, Mapping):
            self._wrong(path, f"A rule has the keys {', '.join(RULE)}.")
            return None
        self._refuse_unknown(row, RULE, path)
        name = row.get("name")
        if not isinstance(name, str) or not 1 <= len(name.strip()) <= NAME_CHARACTERS or not name.isprintable():
            self._wrong((*path, "name"), f"A rule needs a name of at most {NAME_CHARACTERS} characters.")
            return None
        when = self._condition(row.get("when"), name, (*path, "when"))
        refuse = row.get("refuse", "")
        is_sentence = isinstance(refuse, str) and len(refuse) <= MESSAGE_CHARACTERS
        if not is_sentence or ("refuse" in row and not refuse.strip()):
            most = MESSAGE_CHARACTERS
            self._wrong((*path, "refuse"), f"{name}: `refuse` is a sentence of at most {most} characters.")
            return None
        if ("refuse" in row) == ("require" in row):
            self._wrong(path, f"{name}: a rule has either `refuse` or `require`.")
            return None
        demands = self._demands(row["require"], name, (*path, "require")) if "require" in row else {}
        if when is None or demands is None:
            return None
        return PolicyRule(name.strip(), when, refuse.strip(), **demands)

    def _condition(self, source: Any, name: str, path: tuple[str | int, ...]) -> Condition | None:
        if not isinstance(source, str):
            self._wrong(path, f"{name}: `when` is a condition in CEL. Put one that is `true` in quotes.")
            return None
        try:
            return conditions.compiled(source)
        except BadCondition as error:
            self._wrong(path, f"{name}: `when`, {error}")
            return None

    def _demands(self, row: Any, name: str, path: tuple[str | int, ...]) -> dict[str, Any] | None:
        if not isinstance(row, Mapping) or not row:
            self._wrong(path, f"{name}: `require` has some of the keys {', '.join(REQUIRE)}.")
            return None
        before = len(self.errors)
        self._refuse_unknown(row, REQUIRE, path)
        role, scope = row.get("of_role", ""), row.get("of_scope", "")
        approvers = self._number(row, "approvers", name, path)
        count = self._number(row, "of_count", name, path)
        if role and role not in ROLES:
            self._wrong((*path, "of_role"), f"{name}: `of_role` is one of {', '.join(ROLES)}.")
        if bool(role) != bool(count) or (scope and not role):
            self._wrong(path, f"{name}: `of_role` and `of_count` go together, and `of_scope` needs both.")
        if count > max(approvers, 1):
            self._wrong((*path, "of_count"), f"{name}: `of_count` is at most `approvers`.")
        if scope:
            scope = self._scope(scope, name, path)
        fresh, owners = self._flag(row, "fresh_login", name, path), self._flag(row, "owners", name, path)
        if len(self.errors) == before and not (approvers or count or fresh or owners):
            self._wrong(path, f"{name}: `require` asks for nothing.")
        if len(self.errors) > before:
            return None
        approvers = max(approvers, 1) if count else approvers
        return {
            "approvers": approvers, "of_count": count, "of_role": role, "of_scope": scope, "owners": owners,
            "fresh_login": fresh,
        }  # fmt: skip

    def _scope(self, scope: Any, name: str, path: tuple[str | int, ...]) -> str:
        try:
            return check_scope(scope if isinstance(scope, str) else "")
        except Invalid as refusal:
            self._wrong((*path, "of_scope"), f"{name}: `of_scope`: {' '.join(refusal.fields.get('scope', []))}")
            return ""

    def _number(self, row: Mapping[str, Any], key: str, name: str, path: tuple[str | int, ...]) -> int:
        value = row.get(key, 0)
        if isinstance(value, bool) or not isinstance(value, int) or (key in row and not 1 <= value <= MOST_APPROVERS):
            self._wrong((*path, key), f"{name}: `{key}` is a whole number from 1 to {MOST_APPROVERS}.")
            return 0
        return value

    def _flag(self, row: Mapping[str, Any], key: str, name: str, path: tuple[str | int, ...]) -> bool:
        value = row.get(key, False)
        if not isinstance(value, bool):
            self._wrong((*path, key), f"{name}: `{key}` is true or false.")
        return value is True

    def _refuse_unknown(self, row: Mapping[str, Any], known: tuple[str, ...], path: tuple[str | int, ...]) -> None:
        for key in row:
            if key not in known:
                self._wrong((*path, key), f"“{str(key)[:40]}” is not known here. There are {', '.join(known)}.")

    def _wrong(self, path: tuple[str | int, ...], reason: str) -> None:
        self.errors.append(f"Line {self.document.line(*path)}: {reason}")
