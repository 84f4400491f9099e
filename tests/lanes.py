"""Distribution of tests over processes: a file stays together, for its servers and its fixtures are made once.

In the fast tier a file may be in two parts: its tests that empty the tables, migrations' rows among them, have to come
after all other tests of a process that ask the database, where pytest-django puts them.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

DEMO = "tests/full/demo/"
"""Its files share one running demo."""
KERNEL = "this kernel"
OF_THIS_KERNEL = frozenset(
    f"tests/full/{name}.py"
    for name in (
        "nodes/test_agent_in_a_cluster",
        "nodes/test_agent_on_this_kernel",
        "browser/test_end_to_end_browser",
        "nodes/test_end_to_end_rest",
    )
)
"""They turn settings of the kernel that runs them, which is one for all processes: never two at once."""
FIRST = (
    DEMO,
    "tests/full/deployment/test_images.py",
    KERNEL,
    "tests/platform/rest/test_every_answer.py",
    "tests/full/browser/test_readme_walk.py",
    "tests/full/browser/test_pages_in_browser.py",
    "tests/full/nodes/test_faults_nodes.py",
    "tests/full/nodes/test_faults_proxied.py",
    "tests/full/nodes/test_fleet_runs.py",
    "tests/full/components/test_real_charts_v3.py",
    "tests/full/components/test_real_charts_v4.py",
)
"""Long ones: begun last, one of them would run alone for minutes."""


class Lanes(LoadScopeScheduling):
    """A file at a time, those of many tests first; the files of this kernel, and of the demo, one after the other."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return KERNEL if file in OF_THIS_KERNEL else DEMO if file.startswith(DEMO) else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        if scope := next((scope for scope in FIRST if scope in self.workqueue), None):
            self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)


class InOrder(LoadScopeScheduling):
    """The tests of a file that are collected one after another, in the order of their collection."""

    def __init__(self, config: pytest.Config, log: Any) -> None:
        super().__init__(config, log)
        self._parts: dict[str, str] = {}

    def schedule(self) -> None:
        self.config.option.loadscopereorder = False
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        if not self._parts:
            assert self.collection is not None
            for number, (file, tests) in enumerate(groupby(self.collection, lambda test: test.partition("::")[0])):
                self._parts.update(dict.fromkeys(tests, f"{number} {file}"))
        return self._parts[nodeid]
