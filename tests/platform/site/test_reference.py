"""The generated pages of the documentation name exactly what the code has, by other ways to look at it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from config.metrics import registry
from tools.site import diagrams, pages, rest, tables, variables
from tools.site.variables import Description, Reader

ROOT = Path(__file__).resolve().parents[3]
READ = re.compile(r"(?:env\.\w+|environ\.get)\(\s*\"(SETPOINT_[A-Z_]+)\"")


def first_cells(page: str) -> list[str]:
    return re.findall(r"^\| `([^`]+)`", page, re.MULTILINE)


# ── Settings ──────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_the_page_of_settings_has_each_variable_that_any_module_reads() -> None:
    read = set()
    for path in ROOT.glob("*/**/*.py"):
        if path.relative_to(ROOT).parts[0] not in ("tests", "tools", "node_modules", "bench", "var"):
            read |= set(READ.findall(path.read_text(encoding="utf-8")))
    listed = first_cells(variables.page(ROOT))
    assert "SETPOINT_LEASE_SECONDS" in read
    assert len(listed) == len(set(listed))
    assert {name for name in listed if "<KEY>" not in name} == read


def test_the_page_of_settings_has_each_variable_of_a_provider() -> None:
    from config import oidc, saml

    keyed = {name for name in first_cells(variables.page(ROOT)) if "<KEY>" in name}
    read = {f"{of.PREFIX}<KEY>_{part}" for of in (oidc, saml) for part in (*of.REQUIRED, *of.OPTIONAL)}
    assert keyed == read


@pytest.mark.parametrize(
    ("read", "described", "names"),
    [
        ({"SETPOINT_A": Reader("SETPOINT_A", "text", None)}, {}, "SETPOINT_A"),
        ({}, {"SETPOINT_B": Description("none", "x")}, "SETPOINT_B"),
        ({"SETPOINT_C": Reader("SETPOINT_C", "seconds", "30")}, {"SETPOINT_C": Description("300", "x")}, "SETPOINT_C"),
        ({"SETPOINT_D": Reader("SETPOINT_D", "flag", "true")}, {"SETPOINT_D": Description("`false`", "x")}, "true"),
        ({"SETPOINT_E": Reader("SETPOINT_E", "seconds", "0.5")}, {"SETPOINT_E": Description("5", "x")}, "0.5"),
        ({}, {"SETPOINT_OIDC_<KEY>_NAME": Description("the key", "x")}, ""),
        ({"SETPOINT_F": Reader("SETPOINT_F", "integer", "4")}, {"SETPOINT_F": Description("4", "x")}, ""),
    ],
)
def test_code_and_description_that_differ_are_named(read, described, names: str) -> None:
    wrong = variables.objections(read, described)
    assert bool(wrong) == bool(names)
    assert not names or names in wrong[0]


# ── REST ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_the_page_of_rest_has_each_operation_once() -> None:
    text = (ROOT / "docs/openapi.yaml").read_text(encoding="utf-8").partition("\ncomponents:")[0]
    written, path = [], ""
    for line in text.splitlines():
        if match := re.fullmatch(r"  (/api/v1/\S*):", line):
            path = match[1]
        elif match := re.fullmatch(r"    (get|post|put|patch|delete):", line):
            written.append((match[1].upper(), path))
    listed = re.findall(r"^\| `([A-Z]+)` \| `([^`]+)` \| \S.* \| \S.* \|$", rest.page(ROOT), re.MULTILINE)
    assert len(written) > 200
    assert sorted(listed) == sorted(written)


def test_a_role_is_listed_only_where_it_is_not_refused() -> None:
    who = rest.permissions(ROOT)
    assert who["GET", "/api/v1/clusters"] == "each role"
    assert who["GET", "/api/v1/me"] == "each account"
    assert who["GET", "/api/v1/gpus/teams/{}/week"] == "each role, and viewers of that team"
    assert who["POST", "/api/v1/plans/{}/actions/approve"] not in ("each role", "no role")
    unread = dict.fromkeys(rest.ROLES, "422")
    assert rest._who(unread) == "by the body"
    assert rest._who(unread | {"viewer": "403"}) == "operator, approver, admin, auditor"
    assert rest._who(dict.fromkeys(rest.ROLES, "404")) == "each account, for its own"
    assert rest._who(dict.fromkeys(rest.ROLES, "403")) == "no role"


# ── Metrics and alerts ────────────────────────────────────────────────────────────────────────────────────────────────
@pytest.mark.django_db
def test_the_page_of_metrics_has_each_family_that_is_exposed() -> None:
    from prometheus_client import generate_latest

    from tools.site import figures

    exposed = set(re.findall(r"^# TYPE (setpoint_\w+) ", generate_latest(registry).decode(), re.MULTILINE))
    page = figures.metrics_page(figures.families())
    named = set(re.findall(r'"(setpoint_[a-z_]+)"', (ROOT / "config/metrics.py").read_text(encoding="utf-8")))
    assert set(first_cells(page)) == exposed
    assert {name for name in named if not {name, f"{name}_total"} & exposed} == set()
    assert all(cell.strip() for row in page.splitlines()[2:] for cell in (row.split("|")[2], row.split("|")[4]))


@pytest.mark.django_db
def test_the_page_of_alerts_has_each_rule_and_each_notice() -> None:
    from notices.models import Channel
    from tools.site import figures

    written = set()
    for path in ROOT.glob("*/**/*.py"):
        if path.relative_to(ROOT).parts[0] in ("gpus", "jobs", "compliance", "clusters"):
            written |= set(_rules(path))
    page = figures.alerts_page()
    assert len(written) > 20
    assert set(first_cells(page)) == written
    assert "{limit}" not in page
    assert "{lasting}" not in page
    assert first_cells(figures.notices_page()) == [what.value for what in Channel.What]


def _rules(path: Path) -> list[str]:
    """Return the names of the rules that a module offers, which are written there or are constants of it."""
    text = path.read_text(encoding="utf-8")
    constants: dict[str, str] = {}
    for names, values in re.findall(r"^([A-Z_, ]+) = (\"[a-z-]+\"(?:, \"[a-z-]+\")*)$", text, re.MULTILINE):
        constants |= dict(zip(names.split(", "), re.findall(r'"([^"]+)"', values), strict=False))
    given = re.findall(r"AlertRule\(\s*(?:name=)?(\"[a-z-]+\"|[A-Z_]+),", text)
    return [word.strip('"') if word.startswith('"') else constants[word] for word in given]


# ── Pages ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def test_each_document_has_its_place_in_the_navigation() -> None:
    listed = {entry.partition("<")[2].rstrip(">") or entry for _, names in pages.PARTS.values() for entry in names}
    children = {pattern.removesuffix("*") for pattern in pages.CHILDREN.values()}
    for path in sorted((ROOT / "docs").rglob("*.md")):
        name = path.relative_to(ROOT).with_suffix("").as_posix()
        assert name in listed or any(name.startswith(child) for child in children), name


def test_a_cell_keeps_its_text_whatever_is_in_it() -> None:
    page = tables.table(("a", "b"), [("x|y\n z", tables.plain("1 < 2 *and* `c`_d_"))])
    assert page.splitlines()[2] == r"| x\|y z | 1 \< 2 \*and\* \`c\`\_d\_ |"


@pytest.mark.parametrize(
    "line", ["a --> b | c", "a ==> b", "a", "a -->|text| b", "a --> b\nb --> a", "subgraph x", "A[Box] --> B"]
)
def test_a_diagram_that_cannot_be_drawn_is_refused(line: str) -> None:
    with pytest.raises(diagrams.UnknownSyntax):
        diagrams.svg(f"flowchart TB\n  {line}\n")


def test_a_diagram_has_each_box_and_arrow_once() -> None:
    drawn = diagrams.svg("flowchart TB\n  a --> b & c --> d\n  e -. of <x> .-> c\n")
    assert len(re.findall("<rect ", drawn)) == 5
    assert len(re.findall("<line ", drawn)) == 5
    assert drawn.count("stroke-dasharray") == 1
    assert "of &lt;x&gt;" in drawn
    assert "\n\n" not in drawn, "a blank line would end the HTML block in Markdown"
