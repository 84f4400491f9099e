"""Files, functions and folders stay small enough to be read at once."""

from __future__ import annotations

import ast
from collections import Counter

from tests.platform.source.files import ROOT, tracked

LINES_OF_A_FILE = 400
LINES_OF_A_FUNCTION = 60
FILES_OF_A_FOLDER = 25
ENTRIES_OF_A_ROOM = 17
STILL_LONG = {
    "clusters/kube/apiserver.py": 418,
    "common/templatetags/setpoint.py": 538,
    "components/policies/policy_objects.py": 401,
    "components/release/applying.py": 404,
    "contract/nodetuning.py": 416,
    "jobs/engine/node_stages.py": 537,
    "jobs/reports/selectors.py": 445,
    "jobs/rollouts/rollout_actions.py": 509,
    "jobs/web/api.py": 406,
    "jobs/web/serializers.py": 587,
    "profiles/web/editor_views.py": 404,
    "simfleet/memory.py": 408,
    "tests/agent/test_restore.py": 404,
    "tests/clusters/services/test_lifecycle.py": 431,
    "tests/clusters/web/test_pages.py": 421,
    "tests/components/catalog/test_catalog.py": 403,
    "tests/components/charts/test_store.py": 414,
    "tests/components/helm/test_client.py": 437,
    "tests/components/plans/test_diff.py": 406,
    "tests/components/policies/test_policy_objects.py": 479,
    "tests/demo/test_history.py": 434,
    "tests/jobs/approvals/test_approval_rules.py": 529,
    "tests/jobs/approvals/test_approvals.py": 438,
    "tests/jobs/engine/test_adversary_controls.py": 475,
    "tests/jobs/engine/test_adversary_steps.py": 549,
    "tests/jobs/engine/test_laws_of_a_step.py": 401,
    "tests/jobs/engine/test_laws_of_components.py": 851,
    "tests/jobs/engine/test_laws_of_policies.py": 624,
    "tests/jobs/planning/test_joining.py": 443,
    "tests/jobs/planning/test_planning.py": 484,
    "tests/jobs/web/test_api.py": 552,
    "tests/jobs/web/test_pages.py": 591,
    "tests/notices/channels/test_deliveries.py": 477,
    "tests/profiles/document/test_cluster_schema.py": 497,
}
"""Files of more lines, to be split along their own ideas. None grows, and one that is short enough leaves the table."""
STILL_FLAT = {"tests/jobs/engine": 31}
"""Folders of more files, likewise."""
SHARED = {"common", "config"}
"""They are used by all rooms, or tie them together."""


def test_no_file_is_long() -> None:
    lengths = {str(path): len((ROOT / path).read_text(encoding="utf-8").splitlines()) for path in tracked()}
    limits = {path: STILL_LONG.get(path, LINES_OF_A_FILE) for path in lengths}
    assert not {path: length for path, length in lengths.items() if length > limits[path]}
    assert not {path for path in STILL_LONG if lengths.get(path, 0) <= LINES_OF_A_FILE}


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
    limits = {folder: STILL_FLAT.get(folder, FILES_OF_A_FOLDER) for folder in counts}
    assert not {folder: count for folder, count in counts.items() if count > limits[folder]}
    assert not {folder for folder in STILL_FLAT if counts[folder] <= FILES_OF_A_FOLDER}


def test_a_room_has_few_entries_at_its_top() -> None:
    rooms = {path.parts[0] for path in tracked("*/apps.py")} - SHARED
    entries: dict[str, set[str]] = {room: set() for room in rooms}
    for path in tracked():
        if path.parts[0] in rooms and path.parts[1] not in ("__init__.py", "management", "templatetags"):
            entries[path.parts[0]].add(path.parts[1])
    assert not {room: sorted(names) for room, names in entries.items() if len(names) > ENTRIES_OF_A_ROOM}
