"""How the full tier's tests are shared between processes: a file stays together, for its servers are started once."""

from __future__ import annotations

from xdist.scheduler import LoadScopeScheduling

OF_THIS_KERNEL = frozenset(
    f"tests/full/test_{name}.py"
    for name in ("agent_in_a_cluster", "agent_on_this_kernel", "end_to_end_browser", "end_to_end_rest")
)
"""They turn settings of the kernel that runs them, which is one for all processes: never two at once."""


class Lanes(LoadScopeScheduling):
    """A file at a time, and the files of this kernel one after the other."""

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return "this kernel" if file in OF_THIS_KERNEL else file
