"""Distribution of tests over processes: a file stays together, for its servers and worlds are made once.

pytest-xdist's own loadgroup sends each test to whichever process is free, so that each process makes the world of a
module. Its mark xdist_group has no effect with pytest 9.2, which keeps a node's id apart from the text to which
pytest-xdist adds the group.
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
    "tests/components/charts/test_catalog_of_real_charts.py",
    "tests/platform/rest/test_access.py",
    "tests/demo/test_history.py",
    "tests/components/charts/test_real_archives.py",
    "tests/platform/test_embedded.py",
    "tests/platform/rest/test_access_by_scope.py",
    "tests/full/browser/test_readme_walk.py",
    KERNEL,
    "tests/full/deployment/test_api_walk.py",
)
"""Long: begun last, one of them would run alone for a minute or more."""


class Lanes(LoadScopeScheduling):
    """A file at a time, those of many tests first, and the files of this kernel one after the other."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return KERNEL if file in OF_THIS_KERNEL else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        if scope := next((scope for scope in FIRST if scope in self.workqueue), None):
            self.workqueue.move_to_end(scope, last=False)
        super()._assign_work_unit(node)
