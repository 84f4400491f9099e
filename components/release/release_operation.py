"""One component's release while a plan is applied or reverted: helm's own history of it, and what helm leaves undone.

What is done is read from helm's history, never from memory. Revisions that we made are marked (`revision_labels`). One
that a killed helm left pending is recorded as failed first, or helm would refuse the release for ever.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import timedelta

from django.utils.dateparse import parse_datetime

from clusters.kube.apiserver import ApiServer
from clusters.models import Cluster
from common.clock import now
from components.blast.judgment import REMOVE
from components.helm import releases
from components.helm.client import Helm, HelmJob, ReleaseBusy
from components.helm.releases import Release, ReleaseHistory, ReleaseRevision
from components.plans.prepared import Prepared
from components.release import definitions, passed_over, revision_labels

FOREIGN = timedelta(hours=1)
"""A pending revision that is not ours is left alone for this time: its operator may be waiting with `helm --wait`."""
_ABANDONED = "Setpoint: helm was ended before it recorded the revision after this one; recorded as it was."
_KILLED = "Setpoint: helm was ended half way; recorded as failed so that the next try can continue."


@dataclass(frozen=True, slots=True)
class ReleaseOperation(ABC):
    cluster: Cluster
    server: ApiServer
    program: Helm
    prepared: Prepared
    job: HelmJob

    @abstractmethod
    def run(self) -> None:
        """Do what is left to do. Raises HelmError, FleetError."""

    def _uninstall(self, last: ReleaseRevision, *, keeps_history: bool) -> None:
        if last.status != releases.UNINSTALLED:
            definitions.restore(self.server, self.job, last.read())
        self.program.uninstall(self.job, keeps_history=keeps_history)
        self._delete_rest(last)

    def _delete_rest(self, removed: ReleaseRevision | None) -> None:
        if removed is not None:
            passed_over.delete(self.server, self.job, removed.read())
            return
        # A worker that died right after helm left no record: the plan has shown what it was.
        gone = ("deleted",) if self.prepared.action == REMOVE else ("created", "unvalidated")
        self._delete_dropped(None, gone)

    def _make_rest(self, *, is_back: bool = False) -> None:
        if (last := self._history().last) is None or last.status != releases.DEPLOYED:
            return
        release = last.read()
        passed_over.make(self.server, self.job, release)
        gone = ("created", "unvalidated") if is_back else ("deleted",)
        self._delete_dropped(release, gone)

    def _delete_dropped(self, release: Release | None, gone: tuple[str, ...]) -> None:
        dropped = [difference for difference in self.prepared.objects if difference.change in gone]
        passed_over.delete_dropped(self.server, self.job, release, dropped)

    def _history(self) -> ReleaseHistory:
        return releases.history(self.server, self.prepared.namespace, self.prepared.release)

    def is_unrecorded(self) -> bool:
        """Return whether helm's newest revision is of this plan and still pending: helm's exit is then no verdict."""
        last = self._history().last
        return bool(last and last.is_pending and last.status != "uninstalling" and self._is_of_this_plan(last))

    def _is_ours(self, revision: ReleaseRevision) -> bool:
        return revision_labels.plan_of(revision) == revision_labels.plan_label(self.prepared)

    def _is_of_this_plan(self, revision: ReleaseRevision) -> bool:
        """Return whether this plan made the revision, forward or back."""
        return revision_labels.is_of(revision, self.prepared)

    def _mended(self, history: ReleaseHistory) -> ReleaseHistory:
        """Raises ReleaseBusy for a pending revision of another party."""
        last = history.last
        if last is not None and last.is_abandoned:
            self.job.tell(f"Revision {last.number} was left superseded, without a next; it is {last.status} again.")
            releases.mend(self.server, last, _ABANDONED, last.status)
            return self._history()
        if last is None or not last.is_pending or last.status == "uninstalling":
            return history  # an uninstall is simply asked for again
        release = last.read()
        # Of an earlier plan of ours, and this plan saw it so: one rollout at a time works on a component.
        is_left = last.number == self.prepared.from_revision and revision_labels.is_made_by_us(history, last)
        is_ours = is_left or self._is_of_this_plan(last)
        began = parse_datetime(release.updated) if release.updated else None
        if not is_ours and (began is None or now() - began < FOREIGN):
            raise ReleaseBusy(
                f"{self.prepared.release} is {last.status} since {release.updated[:19]}: another helm works on it, or "
                "was killed at it"
            )
        self.job.tell(f"Revision {last.number} was left {last.status}; it is recorded as failed, and helm continues.")
        releases.mend(self.server, last, _KILLED)
        return self._history()


def is_server_side(last: ReleaseRevision | None) -> bool:
    return bool(last and last.read().is_server_side)
