"""Accounts of the demo, their passwords, and the file with which programs log in."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from accounts.access import tokens
from accounts.models import ApiToken, User
from accounts.people import services
from accounts.permissions import TEAM

BY = "demo"
TOKEN_DAYS = 30
Scope = ApiToken.Scope


@dataclass(frozen=True, slots=True)
class DemoRole:
    """A person to log in as."""

    name: str
    role: str
    does: str
    scopes: Sequence[str]
    """Of the personal token in demo.env."""
    also: str = ""
    """A second role."""
    team: str = ""
    """Name of the team that the role is limited to, once the team is there; empty: it counts everywhere."""

    @property
    def email(self) -> str:
        return f"{self.name}@example.com"


PARTS: Sequence[DemoRole] = (
    DemoRole("viewer", "viewer", "looks", (Scope.READ,)),
    DemoRole(
        "operator",
        "operator",
        "writes profiles, plans, starts and reverts",
        (Scope.READ, Scope.PLAN, Scope.APPLY),
        also="break-glass",
    ),
    DemoRole("approver", "approver", "approves", (Scope.READ, Scope.APPROVE)),
    DemoRole("lead", "approver", "approves as well: what disturbs production needs two", (Scope.READ, Scope.APPROVE)),
    DemoRole("team", "viewer", "sees the week of one team and nothing else", (Scope.READ,), team="Language models"),
    DemoRole("admin", "admin", "connects clusters, gives roles", (Scope.READ, Scope.ADMIN)),
)


@dataclass(frozen=True, slots=True)
class DemoPerson:
    part: DemoRole
    user: User
    password: str


def arrive() -> dict[str, DemoPerson]:
    """Make all accounts, by name. Passwords are new at every start."""
    people = {}
    for part in PARTS:
        password = secrets.token_urlsafe(12)
        user = services.create_user(email=part.email, password=password, by=BY)
        for role in filter(None, (part.role, part.also) if not part.team else ()):
            services.bind(user=user, role=role, scope="*", by=BY)
        people[part.name] = DemoPerson(part, user, password)
    return people


def limit_to_teams(by_name: Mapping[str, int]) -> None:
    """Give the roles that are limited to a team. `by_name`: ids of the teams."""
    for part in PARTS:
        if part.team:
            user = User.objects.get(email=part.email)
            services.bind(user=user, role=part.role, scope=f"{TEAM}{by_name[part.team]}", by=BY)


def environment(people: Mapping[str, DemoPerson], url: str) -> dict[str, str]:
    """Return the values of demo.env. Issues each person's token."""
    values = {"SETPOINT_URL": url}
    for name, person in people.items():
        user = User.objects.get(pk=person.user.pk)  # roles are remembered on the object; this one asks afresh
        _, text = tokens.issue(user=user, name="demo.env", scopes=person.part.scopes, days=TOKEN_DAYS, by=user)
        values[f"SETPOINT_TOKEN_{name.upper()}"] = text
    for name, person in people.items():
        values[f"SETPOINT_PASSWORD_{name.upper()}"] = person.password
    return values


def write(path: Path, values: Mapping[str, str]) -> None:
    """Write the values as `KEY=value` lines, readable by the owner only."""
    write_private(path, "".join(f"{name}={value}\n" for name, value in values.items()))


def write_private(path: Path, text: str) -> None:
    """Readable by this account only; whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_name(f".{path.name}.new")
    new.unlink(missing_ok=True)
    with os.fdopen(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as out:
        out.write(text)
    new.replace(path)
