"""Distribution of the full tier's tests over processes: a file stays together, for its servers are started once.

The fast tier cannot have the same: of a file's tests those that empty the tables, migrations' rows among them, have to
come after all other tests of a process, where pytest-django puts them.
"""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling
from xdist.workermanage import WorkerController

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
    "tests/platform/rest/test_every_answer.py",
    "tests/full/browser/test_readme_walk.py",
    KERNEL,
    "tests/full/deployment/test_api_walk.py",
)
"""Few and long: begun last, one of them would run alone for minutes."""


class Lanes(LoadScopeScheduling):
    """A file at a time, those of many tests first, and the files of this kernel one after the other."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return KERNEL if file in OF_THIS_KERNEL else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        if scope := next((scope for scope in FIRST if scope in self.workqueue), None):
            self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)
