"""The reference of SETPOINT_* variables: types from the code that reads them, meanings from docs/operating.md.

The tables of docs/operating.md are the one place where a variable is described. Each must have a reader in the code,
each reader a description, and a default that is a constant in the code must be the one that is written there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tools.site import tables

TYPES = {
    "text": "text",
    "flag": "true or false",
    "integer": "whole number",
    "seconds": "seconds",
    "words": "list, separated by commas",
    "some_of": "list of words",
    "networks": "list of address ranges",
    "one_of": "one of several words",
    "prices": "list of product=price",
    "metric_names": "list of names of metrics",
    "database": "URL of a database",
    "pooler": "none or transaction",
    "broker": "URL of a broker, or none",
    "secret": "secret",
}
"""Type by the function of config.env that reads it."""
KEYED = re.compile(r"SETPOINT_(?:OIDC|SAML)_<KEY>_[A-Z_]+")
"""Variables of one provider of single sign-on, which config.oidc and config.saml read by REQUIRED and OPTIONAL."""
_ROW = re.compile(r"^\| `(SETPOINT_[A-Z_<>]+)` \| (.*?) \| (.*) \|$", re.MULTILINE)


class Undocumented(Exception):
    """Code and docs/operating.md do not name the same variables, or not the same defaults."""


@dataclass(frozen=True, slots=True)
class Reader:
    """One call that reads a variable."""

    name: str
    type: str
    default: str | None
    """As it is written in a variable; None where the code computes it."""
    least: int | None = None


@dataclass(frozen=True, slots=True)
class Description:
    default: str
    meaning: str


def readers(root: Path) -> dict[str, Reader]:
    """Return the variables that the product reads from its environment, by name."""
    out: dict[str, Reader] = {}
    for path in [*sorted((root / "config").glob("*.py")), *sorted((root / "config/management/commands").glob("*.py"))]:
        for reader in _calls(ast.parse(path.read_text(encoding="utf-8"))):
            known = out.get(reader.name)
            if known is None or known.type == "text":  # a URL is first asked for as text: is there one at all
                out[reader.name] = reader
    return out


def _calls(tree: ast.Module) -> Iterator[Reader]:
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute) or not call.args:
            continue
        name, of = call.args[0], ast.unparse(call.func.value)
        if not isinstance(name, ast.Constant) or not str(name.value).startswith("SETPOINT_"):
            continue
        if of == "env" and call.func.attr in TYPES:
            yield _reader(str(name.value), call)
        elif of == "os.environ" and call.func.attr == "get":
            yield Reader(str(name.value), "text", None)


def _reader(name: str, call: ast.Call) -> Reader:
    assert isinstance(call.func, ast.Attribute)
    keywords = {word.arg: word.value for word in call.keywords}
    given = call.args[1] if len(call.args) > 1 else keywords.get("default")
    least = keywords.get("least")
    return Reader(
        name,
        TYPES[call.func.attr],
        _written(given) if given is not None else None,
        least.value if isinstance(least, ast.Constant) and isinstance(least.value, int) else None,
    )


def _written(value: ast.expr) -> str | None:
    if not isinstance(value, ast.Constant):
        return None
    return str(value.value).lower() if isinstance(value.value, bool) else str(value.value)


def descriptions(root: Path) -> dict[str, Description]:
    """Return the rows of the tables of variables in docs/operating.md."""
    text = (root / "docs/operating.md").read_text(encoding="utf-8")
    return {name: Description(default, meaning) for name, default, meaning in _ROW.findall(text)}


def objections(read: Mapping[str, Reader], described: Mapping[str, Description]) -> list[str]:
    """Return what code and documents do not agree on, a sentence each."""
    single = {name for name in described if not KEYED.fullmatch(name)}
    out = [f"{name} is read, and docs/operating.md does not describe it." for name in sorted(set(read) - single)]
    out += [f"docs/operating.md describes {name}, which no code reads." for name in sorted(single - set(read))]
    for name in sorted(single & set(read)):
        default = read[name].default
        written = described[name].default.replace("`", "")
        if default and not re.search(rf"(?<![\w.]){re.escape(default)}(?![\w.])", written):
            out.append(f"{name} is {default} by default, and docs/operating.md says {described[name].default}.")
    return out


def page(root: Path) -> str:
    """Return the page. Raises Undocumented."""
    read, described = readers(root), descriptions(root)
    if wrong := objections(read, described):
        raise Undocumented("\n".join(wrong))
    rows = [
        (tables.code(name), _type(read.get(name)), what.default, _from_here(what.meaning))
        for name, what in described.items()
    ]
    return tables.table(("Variable", "Type", "Default", "What it does"), rows)


def _type(reader: Reader | None) -> str:
    if reader is None:
        return "text"
    return f"{reader.type}, at least {reader.least}" if reader.least is not None else reader.type


def _from_here(markdown: str) -> str:
    """Rewrite links of docs/operating.md for a page in reference/."""
    local = re.sub(r"\]\(#", "](../docs/operating.md#", markdown)
    return re.sub(r"\]\((?!\.\./|[a-z]+:)", "](../docs/", local)
