"""The direction of imports is a law, not a habit."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


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


ROOMS = sorted(path.parent.name for path in ROOT.glob("*/apps.py") if path.parent.name not in ("common", "config"))
"""`config` ties the rooms together, and `common` knows none."""


@pytest.mark.parametrize("room", ROOMS)
def test_what_decides_and_writes_knows_nothing_of_who_asks(room: str) -> None:
    """Every module is checked, not only `services`: what decides and also queues tasks has two masters."""
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


def test_only_two_modules_run_programs_in_production() -> None:
    """helm is run by components.helm.process, and PostgreSQL's clients by the commands for backups; the agent's few
    commands are its own affair."""
    running = {
        str(path.relative_to(ROOT))
        for room in (*ROOMS, "common", "config")
        for path in (ROOT / room).rglob("*.py")
        if "subprocess" in imported(path) or any(name.startswith("subprocess.") for name in imported(path))
    }
    assert running == {"components/helm/process.py", "config/backups/postgresql.py"}


def test_no_file_is_named_for_nothing() -> None:
    """A name that says what is inside, or no file."""
    nameless = {"utils.py", "helpers.py", "managers.py", "signals.py", "misc.py"}
    rooms = [path.parent for path in ROOT.glob("*/__init__.py")]
    assert not [str(path.relative_to(ROOT)) for room in rooms for path in room.rglob("*.py") if path.name in nameless]


def test_every_package_says_what_it_is_for() -> None:
    silent = [
        str(path.relative_to(ROOT))
        for room in (*ROOMS, "common", "config", "contract", "agent", "simfleet")
        for path in (ROOT / room).rglob("__init__.py")
        if not set(path.relative_to(ROOT).parts) & FREE and not ast.get_docstring(ast.parse(path.read_text()))
    ]
    assert not silent


def test_documents_name_only_modules_that_exist() -> None:
    """A file by its path or its last parts (`jobs/tasks.py`, `reconcile.py`), a module or what is in it by dots."""
    folders = [path for path in ROOT.iterdir() if path.is_dir() and path.name not in (".git", ".venv", "node_modules")]
    tracked = [str(path.relative_to(ROOT)) for folder in folders for path in folder.rglob("*.[pjy]*")]
    modules = {path.removesuffix(".py").removesuffix("/__init__").replace("/", ".") for path in tracked}
    tops = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    wrong = []
    for document in ("docs/architecture.md", "CONTRIBUTING.md"):
        for word in sorted(set(re.findall(r"`([^`\n]+)`", (ROOT / document).read_text()))):
            if re.fullmatch(r"[a-z_0-9]+(/[a-z_0-9]+)*\.(py|js|yaml)", word):
                is_there = any(path == word or path.endswith(f"/{word}") for path in tracked)
            elif re.fullmatch(r"([a-z_0-9]+\.)+[A-Za-z_0-9]+", word) and word.partition(".")[0] in tops:
                parts = word.split(".")
                is_there = any(".".join(parts[:end]) in modules for end in range(2, len(parts) + 1))
            elif re.fullmatch(r"[a-z_]+(/[a-z_0-9]+)*/", word):
                is_there = (ROOT / word).is_dir()
            else:
                continue
            wrong += [] if is_there else [f"{document}: {word}"]
    assert not wrong


def test_the_picture_of_the_rooms_names_each_room_and_each_of_its_packages() -> None:
    """A row is `| `room/` | what it is for | its packages |`, the packages in the order of the import contract."""
    text = (ROOT / "docs/architecture.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)/` \| [^|]+\|([^|]*)\|$", text, re.MULTILINE))
    assert rows.keys() >= {*ROOMS, "common", "config", "contract", "agent", "simfleet"}
    for room in ("gpus", "jobs", "components", "clusters", "profiles"):
        packages = {path.parent.name for path in (ROOT / room).glob("*/__init__.py")} - FREE
        named = {name.removesuffix(".py") for name in re.findall(r"`([\w.]+)`", rows[room])}
        assert packages <= named, f"{room}: {sorted(packages - named)} are missing"
        assert not {
            name for name in named if not (ROOT / room / name).is_dir() and not (ROOT / room / f"{name}.py").exists()
        }
