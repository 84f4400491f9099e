"""Files, functions and folders stay small enough to be read at once."""

from __future__ import annotations

import ast
from collections import Counter

from tests.platform.source.files import ROOT, tracked

LINES_OF_A_FILE = 400
LINES_OF_A_FUNCTION = 60
FILES_OF_A_FOLDER = 25
ENTRIES_OF_A_ROOM = 17
SHARED = {"common", "config"}
"""They are used by all rooms, or tie them together."""


def test_no_file_is_long() -> None:
    lengths = {str(path): len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in tracked()}
    assert not {path: length for path, length in lengths.items() if length > LINES_OF_A_FILE}


def test_no_function_is_long() -> None:
    long = [
        f"{path}:{node.lineno} {node.name}: {length}"
        for path in tracked()
        for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (length := (node.end_lineno or node.lineno) - node.lineno + 1) > LINES_OF_A_FUNCTION
    ]
    assert not long


def test_no_folder_is_flat() -> None:
    counts = Counter(str(path.parent) for path in tracked())
    assert not {folder: count for folder, count in counts.items() if count > FILES_OF_A_FOLDER}


def test_a_room_has_few_entries_at_its_top() -> None:
    rooms = {path.parts[0] for path in tracked("*/apps.py")} - SHARED
    entries: dict[str, set[str]] = {room: set() for room in rooms}
    for path in tracked():
        if path.parts[0] in rooms and path.parts[1] not in ("__init__.py", "management", "templatetags"):
            entries[path.parts[0]].add(path.parts[1])
    assert not {room: sorted(names) for room, names in entries.items() if len(names) > ENTRIES_OF_A_ROOM}
