"""Revert of a prepared component: a rollback to the revision before the plan, or an uninstall where there was none."""

from __future__ import annotations

from dataclasses import dataclass

from clusters.kube import discovery
from components.blast.judgment import REMOVE
from components.helm import releases
from components.helm.client import HelmRefused
from components.helm.releases import ReleaseRevision
from components.release import definitions, replaced, revision_labels
from components.release.release_operation import ReleaseOperation, is_server_side


@dataclass(frozen=True, slots=True)
class Revert(ReleaseOperation):
    def run(self) -> None:
        if self.prepared.action == REMOVE:
            self._bring_back()
            return
        history = self._mended(self._history())
        last, target = history.last, self.prepared.back_to
        if last is None or (not target and last.status == releases.UNINSTALLED):
            self._delete_rest(last)
            return
        if self.prepared.replaced and any(self._is_of_this_plan(revision) for revision in history.revisions):
            # Before anything of the component goes: without both no Service would be reachable.
            replaced.put_back(self.server, discovery.read(self.server), self.job, self.prepared)
        if is_back(last, target):
            self.job.tell(f"{self.prepared.release} is back already.")
            self._make_rest(is_back=True)
            return
        if not any(self._is_ours(revision) for revision in history.revisions):
            if last.number == self.prepared.from_revision:
                return  # nothing was ever done
            raise HelmRefused(f"another party made revision {last.number} of {self.prepared.release}; it is left alone")
        if not self._is_ours(last) and last.status not in (releases.FAILED, "uninstalling"):
            raise HelmRefused(f"another party made revision {last.number} of {self.prepared.release}; it is left alone")
        if target:
            if (revision := history.numbered(target)) is None:
                raise HelmRefused(f"helm keeps revision {target} of {self.prepared.release} no longer")
            self._roll_back(last, revision)
        else:
            # What was recorded before the plan is not its own: a removal before it is put back from there.
            self._uninstall(last, keeps_history=self.prepared.from_revision > 0)

    def _bring_back(self) -> None:
        """Bring back a removed release, from helm's own record of it."""
        history = self._mended(self._history())
        last, target = history.last, self.prepared.back_to
        if last is not None and is_back(last, target):
            self.job.tell(f"{self.prepared.release} is there.")
            self._make_rest(is_back=True)
            return
        revision = history.numbered(target)
        if last is None or not target or revision is None:
            raise HelmRefused(f"helm keeps no revision of {self.prepared.release} to restore")
        if last.status == "uninstalling":
            self._uninstall(last, keeps_history=True)  # half removed: to its end, then back
        elif last.status not in (releases.UNINSTALLED, releases.FAILED):
            raise HelmRefused(f"another party made revision {last.number} of {self.prepared.release}; it is left alone")
        self._roll_back(last, revision)

    def _roll_back(self, last: ReleaseRevision, target: ReleaseRevision) -> None:
        is_by_server = is_server_side(last)
        definitions.restore_for_rollback(self.server, self.job, last, target.read(), is_server_side=is_by_server)
        releases.label(self.server, last, revision_labels.rollback_labels(last, target))
        self.program.rollback(self.job, target.number, is_server_side=is_by_server)
        self._make_rest(is_back=True)


def is_back(last: ReleaseRevision, target: int) -> bool:
    """Return whether helm's newest revision is the one a revert goes to, or a rollback to it."""
    if not target or last.status != releases.DEPLOYED:
        return False
    return last.number == target or revision_labels.rollback_of(last) == target
