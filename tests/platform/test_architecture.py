"""The direction of imports is a law, not a habit."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_every_import_contract_is_kept() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    if not program.exists():
        pytest.fail("import-linter is not installed in this environment")
    done = subprocess.run([program, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def imported(path: Path) -> Iterator[str]:
    """Every name that a file imports, wherever in the file, as `module` or `module.name`."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


@pytest.mark.parametrize(
    ("part", "ours"),
    [
        ("contract", {"contract"}),
        ("agent", {"contract", "agent"}),
        ("clusters/fleet.py", {"contract", "clusters.fleet", "clusters.objects"}),
        ("clusters/objects.py", {"contract", "clusters.fleet", "clusters.objects"}),
        ("simfleet", {"contract", "agent", "simfleet", "clusters.fleet", "clusters.objects"}),
    ],
)
def test_a_part_that_others_carry_away_needs_only_the_standard_library(part: str, ours: set[str]) -> None:
    """The agent's image holds Python and two folders; a package imported by accident fails on the node, not here."""
    place = ROOT / part
    files = [place] if place.is_file() else sorted(place.rglob("*.py"))
    assert files
    foreign = {
        f"{path.relative_to(ROOT)}: {module}"
        for path in files
        for module in imported(path)
        if module.partition(".")[0] not in sys.stdlib_module_names
        and not any(module == own or module.startswith(f"{own}.") for own in ours)
    }
    assert not foreign


INTERFACES = {"tasks", "web", "views", "pages", "panels", "api", "api_urls", "urls", "admin"}
"""What calls services, which therefore send no Celery messages: rows are the queue."""
FREE = {"apps", "management", "templatetags", "migrations"}
"""Start-up and commands, which tie everything together."""


@pytest.mark.parametrize("room", ["jobs", "compliance", "components", "clusters", "profiles", "accounts", "audit"])
def test_what_decides_and_writes_knows_nothing_of_who_asks(room: str) -> None:
    """In every module, not only in `services`: what decides and also queues tasks has two masters."""
    guilty = []
    for path in sorted((ROOT / room).rglob("*.py")):
        parts = set(path.relative_to(ROOT / room).with_suffix("").parts)
        if parts & (INTERFACES | FREE) or path.stem.endswith(("_views", "_api")):  # a part of views, such as node_views
            continue
        for name in imported(path):
            module = name.split(".")
            if (ROOT / module[0] / "__init__.py").exists() and set(module[1:3]) & INTERFACES and module[0] != "common":
                guilty.append(f"{path.relative_to(ROOT)}: {name}")
    assert not guilty


def test_only_one_module_runs_programs_in_production() -> None:
    """helm is run by components.helm.process, for components.helm; the agent's few commands are its own affair."""
    rooms = ("config", "jobs", "compliance", "components", "clusters", "profiles", "accounts", "audit", "common")
    running = {
        str(path.relative_to(ROOT))
        for room in rooms
        for path in (ROOT / room).rglob("*.py")
        if "subprocess" in imported(path) or any(name.startswith("subprocess.") for name in imported(path))
    }
    assert running == {"components/helm/process.py"}


def test_no_file_is_named_for_nothing() -> None:
    """A name that says what is inside, or no file."""
    nameless = {"utils.py", "helpers.py", "managers.py", "signals.py", "misc.py"}
    rooms = [path.parent for path in ROOT.glob("*/__init__.py")]
    assert not [str(path.relative_to(ROOT)) for room in rooms for path in room.rglob("*.py") if path.name in nameless]
