"""The reference of REST: one table for each tag of docs/openapi.yaml, with who may use it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from tools.site import tables

METHODS = ("get", "post", "put", "patch", "delete")
ROLES = ("viewer", "operator", "approver", "admin", "auditor")
ACCESS = "tests/platform/rest/access.txt"
"""Status that each role gets, which a test tries line by line: anonymous, then ROLES, then OTHERS."""
OTHERS = ("outside", "team", "none")
REFUSED = frozenset({"401", "403", "404"})
UNREAD = frozenset({"400", "422", "428"})
"""Answers to a request without a body. Where every role gets one, the body decides who may send it."""
PREFIX = "api/v1/"


def document(root: Path) -> dict[str, Any]:
    text = (root / "docs/openapi.yaml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))  # noqa: S506
    return loaded  # by the C loader, which is safe, too: 0.3 s instead of 4 s


def operations(of: Mapping[str, Any]) -> Iterator[tuple[str, str, str, Mapping[str, Any]]]:
    """Yield (tag, method, path, operation) in the document's order."""
    for path, item in of["paths"].items():
        for method in METHODS:
            if operation := item.get(method):
                yield operation["tags"][0], method.upper(), path, operation


def permissions(root: Path) -> dict[tuple[str, str], str]:
    """Return who may use an address, by method and path without the names of its parameters."""
    out = {}
    for line in (root / ACCESS).read_text(encoding="utf-8").splitlines():
        parts = line.split(maxsplit=len(ROLES) + len(OTHERS) + 2)
        if len(parts) == len(ROLES) + len(OTHERS) + 3 and not line.startswith("#") and parts[-1].startswith(PREFIX):
            out[parts[0], _bare(f"/{parts[-1]}")] = _who(
                dict(zip(ROLES, parts[2 : 2 + len(ROLES)], strict=True)), team=parts[-3], none=parts[-2]
            )
    return out


def _who(statuses: Mapping[str, str], *, team: str = "403", none: str = "403") -> str:
    """`team`, `none`: the statuses of a viewer limited to a team, and of an account without a role."""
    allowed = [role for role, status in statuses.items() if status not in REFUSED]
    if len(allowed) == len(ROLES):
        if set(statuses.values()) <= UNREAD:
            return "by the body"
        if none not in REFUSED:
            return "each account"
        return "each role" if team in REFUSED else "each role, and viewers of that team"
    if not allowed:
        return "each account, for its own" if "404" in statuses.values() else "no role"
    return ", ".join(allowed)


def _bare(path: str) -> str:
    return re.sub(r"<[^>]*>|\{[^}]*\}", "{}", path).rstrip("/")


def page(root: Path) -> str:
    """Return the tables. Raises KeyError for an operation without a line in ACCESS."""
    who = permissions(root)
    by_tag: dict[str, list[tuple[str, str, str, str]]] = {}
    for tag, method, path, operation in operations(document(root)):
        summary = operation.get("summary") or operation.get("description", "").partition("\n")[0]
        row = (tables.code(method), tables.code(path), tables.plain(summary), who[method, _bare(path)])
        by_tag.setdefault(tag, []).append(row)
    head = ("Method", "Path", "What it does", "Roles")
    parts = (f"## {tag.replace('-', ' ').capitalize()}\n\n{tables.table(head, by_tag[tag])}" for tag in sorted(by_tag))
    return "\n".join(parts)
