"""Apply and revert of a prepared component: idempotent, because a worker may die at any line and another continues.

What is done is read from helm's own history, never from memory. Revisions that we made are marked (`revision_labels`);
one without the mark is another party's, and an upgrade by hand meanwhile is not overwritten. A revision that a killed
helm left pending is recorded as failed first, or helm would refuse the release for ever.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from django.utils.dateparse import parse_datetime

from clusters.connection import registry
from clusters.fleet import Conflict
from clusters.kube import discovery
from clusters.kube.apiserver import ApiServer, Call
from clusters.models import Cluster
from common.clock import now
from components.access import permitting
from components.blast.judgement import REMOVE
from components.catalog import catalog, values_check
from components.charts import archives
from components.helm import client, rbac, recorded, releases, rendering
from components.helm.client import Helm, HelmJob, HelmRefused, HelmUnavailable, ReleaseBusy
from components.helm.releases import Release, ReleaseHistory, ReleaseRevision
from components.helm.rendering import Manifest, Rendered
from components.plans import adopt, impact
from components.plans.diff import Comparison
from components.plans.prepared import Prepared
from components.release import definitions, passed_over, revision_labels
from components.release.preparing import ENFORCE, secret_reader, stand_ins

FOREIGN = timedelta(hours=1)
"""A pending revision that is not ours is left alone so long: somebody may be waiting with `helm --wait`."""
AFTER_SECONDS = 60.0
"""How much longer than helm its token lives: what it left is looked at afterwards."""
BEFORE_SECONDS = 20.0
"""How long before its credential ends helm is stopped at the latest: it records that it failed meanwhile."""
_ABANDONED = "Setpoint: helm was ended before it recorded the revision after this one; recorded as it was."
_KILLED = "Setpoint: helm was ended half way; recorded as failed so that the next try can continue."


@dataclass(frozen=True, slots=True)
class ReleaseOperation:
    cluster: Cluster
    server: ApiServer
    program: Helm
    prepared: Prepared
    job: HelmJob

    # ── forward ───────────────────────────────────────────────────────────────────────────────────────────────────
    def forward(self) -> None:
        if self.prepared.action == REMOVE:
            self._remove()
            return
        history = self._mended(self._history())
        last = history.last
        if self._is_done(last):
            self.job.tell(f"{self.prepared.release} is installed already.")
            self._make_rest()
            self._put_back()
            adopt.keep(self.cluster, self.prepared)
            return
        if self.prepared.action == "none":
            return
        self._check_unmoved(history)
        self._check_program()
        self._check_destroyed()
        content = archives.content(self.prepared.archive)
        approved = self._check_manifest(content)
        self._namespace()
        seen: list[str] = []
        look = secret_reader(self.server, self.prepared.namespace, seen)
        given = values_check.resolved(self.prepared.values, look)
        job = replace(self.job, secrets=tuple(seen))
        real = self._rendered(content, given, job) if seen else approved  # before: what is served then is another
        self._define(approved)
        labels = revision_labels.labels(self.prepared, history)
        if self.prepared.action == "install":
            self.program.install(job, content, given, labels=labels, is_again=last is not None)
        else:
            self.program.upgrade(job, content, given, labels=labels, is_server_side=_is_server_side(last))
        self._check_recorded(real)
        self._make_rest()
        self._put_back()
        adopt.keep(self.cluster, self.prepared)

    def _define(self, approved: Rendered) -> None:
        """Create the definitions of `crds/` that the plan listed; existing ones stay as they are.

        Raises HelmRefused, FleetError.
        """
        if not approved.crds:
            return
        comparison = Comparison(
            server=self.server,
            served=discovery.read(self.server),
            release=self.prepared.release,
            namespace=self.prepared.namespace,
        )
        listed = {(one.kind, one.name) for one in self.prepared.objects if one.change == "created"}
        absent = [one.wanted for one in comparison.absent(approved.crds)]
        if gone := [one for one in absent if (one.kind, one.name) not in listed]:
            raise HelmRefused(
                f"{gone[0].kind} {gone[0].name} of the crds/ of {self.prepared.component} is not there, and the plan "
                "does not list it; plan again"
            )
        for name in definitions.make(self.server, self.job, [one.raw for one in absent]):
            self.job.tell(f"{name} of the chart's crds/ is created.")

    def _remove(self) -> None:
        history = self._mended(self._history())
        last = history.last
        if last is None or last.status == releases.UNINSTALLED:
            self.job.tell(f"{self.prepared.release} is removed already.")
            self._delete_rest(last)
            return
        self._check_same(last)
        self._check_program()
        self._check_destroyed()
        self._uninstall(last, keeps_history=True)

    def _check_same(self, last: ReleaseRevision) -> None:
        """Check that what is deleted is what the plan showed: the same revision, none newer. Raises HelmRefused."""
        if last.number != self.prepared.from_revision:
            raise HelmRefused(
                f"{self.prepared.release} is at revision {last.number}, and the plan saw "
                f"{self.prepared.from_revision}: it was changed meanwhile; plan again"
            )

    def _put_back(self) -> None:
        """Put back manual changes of custom resources: the plan showed them, and helm v3 does not look at them."""
        last = self._history().last
        if last is None or self.prepared.action == "install":
            return
        current = last.read()
        if current.is_server_side:
            return  # helm v4 applied the whole
        comparison = Comparison(
            server=self.server,
            served=discovery.read(self.server),
            release=self.prepared.release,
            namespace=self.prepared.namespace,
            is_whole=True,
            spares_definitions=True,
        )
        for name in comparison.put_back([Manifest(raw) for raw, _ in rendering.split(current.manifest.encode())]):
            self.job.tell(f"{name} is put back to what was approved.")

    def _is_done(self, last: ReleaseRevision | None) -> bool:
        return bool(last and last.status == releases.DEPLOYED and self._is_ours(last))

    def _is_ours(self, revision: ReleaseRevision) -> bool:
        return revision_labels.plan_of(revision) == revision_labels.plan_label(self.prepared)

    def _check_unmoved(self, history: ReleaseHistory) -> None:
        """Check that every revision newer than the plan saw is our own earlier try. Raises HelmRefused."""
        planned = self.prepared.from_revision
        if planned and not history.revisions:
            raise HelmRefused(f"the release {self.prepared.release} was removed since the plan was made; plan again")
        for revision in history.revisions:
            if revision.number > planned and not self._is_ours(revision) and revision.status != releases.UNINSTALLED:
                raise HelmRefused(
                    f"another party made revision {revision.number} of {self.prepared.release} since the plan saw "
                    f"{f'revision {planned}' if planned else 'none'}; plan again"
                )

    def _check_program(self) -> None:
        if self.program.version != self.prepared.helm_version:
            raise HelmRefused(
                f"the plan was made with helm {self.prepared.helm_version}, and this worker has "
                f"{self.program.version}; plan again, or give all workers the same"
            )

    def _check_destroyed(self) -> None:
        """Consent was given to a number of objects: more of them have none. Raises HelmRefused."""
        served = discovery.read(self.server) if self.prepared.destroys else None
        for one in self.prepared.destroys:
            assert served is not None
            there = impact.count(self.server, served, one.definition, one.kind)
            if one.count >= 0 and not 0 <= there <= one.count:
                now_there = f"there are {there:,} of them" if there >= 0 else "counting them is not permitted"
                raise HelmRefused(
                    f"{self.prepared.component} removes the kind {one.kind} and its objects, of which the plan saw "
                    f"{one.count:,}: now {now_there}; plan again"
                )

    def _rendered(self, content: bytes, given: Mapping[str, Any], job: HelmJob) -> Rendered:
        served = discovery.read(self.server)
        return rendering.again(
            self.program,
            job,
            content,
            given,
            kube_version=served.version,
            api_versions=served.api_versions,
            is_upgrade=self.prepared.action != "install",
            masked=self.prepared.masked,
            is_blind=self.prepared.is_blind,
        )

    def _check_recorded(self, approved: Rendered) -> None:
        """helm rendered once more for itself: what it recorded is what was approved, or it failed.

        Recorded as failed, so that it counts as installed nowhere. Raises HelmRefused.
        """
        last = self._history().last
        if last is None or not self._is_ours(last) or not (found := recorded.others(approved, last.read())):
            return
        told = f"helm installed other objects than what was approved: {recorded.listed(found)}"
        if self.prepared.is_blind:
            self.job.tell(f"{told}. The plan said that what the chart looks up counted as absent.")
            return
        releases.mend(self.server, last, f"Setpoint: {told}")
        raise HelmRefused(
            f"{told}. The chart renders otherwise when helm installs it, by what it looks up in the cluster, by chance "
            "or by the clock; revert, and do not trust this archive"
        )

    def _check_manifest(self, content: bytes) -> Rendered:
        """Check that the approved manifest is the one that runs: the chart still renders to what the plan showed.

        Raises HelmRefused.
        """
        again = self._rendered(content, stand_ins(self.prepared.values), self.job)
        if again.digest != self.prepared.manifest_digest:
            raise HelmRefused(
                f"{self.prepared.component} does not render to what was approved any more: the cluster's version, what "
                "it serves, or an object that the chart looks up is another; plan again"
            )
        return again

    def _namespace(self) -> None:
        """Create the namespace with the Pod Security level that the component needs; an existing one stays as it is."""
        level = catalog.get(self.prepared.component).pod_security
        meta = {"name": self.prepared.namespace, "labels": {ENFORCE: level}}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
        path = f"/api/v1/namespaces/{discovery.segment(self.prepared.namespace)}"
        if self.server.send(Call("get", "namespaces", self.prepared.namespace), "GET", path).status == 200:
            return
        try:
            call = Call("create", "namespaces", self.prepared.namespace)
            self.server.ask(call, "POST", "/api/v1/namespaces", body=body)
        except Conflict:
            return  # somebody was faster

    # ── back ──────────────────────────────────────────────────────────────────────────────────────────────────────
    def back(self) -> None:
        if self.prepared.action == REMOVE:
            self._bring_back()
            return
        history = self._mended(self._history())
        last, target = history.last, self.prepared.back_to
        if last is None or (not target and last.status == releases.UNINSTALLED):
            self._delete_rest(last)
            return
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
            if (wanted := history.numbered(target)) is None:
                raise HelmRefused(f"helm keeps revision {target} of {self.prepared.release} no longer")
            self._roll_back(last, wanted)
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
        wanted = history.numbered(target)
        if last is None or not target or wanted is None:
            raise HelmRefused(f"helm keeps no revision of {self.prepared.release} to restore")
        if last.status == "uninstalling":
            self._uninstall(last, keeps_history=True)  # half removed: to its end, then back
        elif last.status not in (releases.UNINSTALLED, releases.FAILED):
            raise HelmRefused(f"another party made revision {last.number} of {self.prepared.release}; it is left alone")
        self._roll_back(last, wanted)

    def _roll_back(self, last: ReleaseRevision, target: ReleaseRevision) -> None:
        is_server_side = _is_server_side(last)
        definitions.restore_for_rollback(self.server, self.job, last, target.read(), is_server_side=is_server_side)
        releases.label(self.server, last, revision_labels.rollback_labels(last, target))
        self.program.rollback(self.job, target.number, is_server_side=is_server_side)
        self._make_rest(is_back=True)

    # ── both ──────────────────────────────────────────────────────────────────────────────────────────────────────
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
        dropped = [one for one in self.prepared.objects if one.change in gone]
        passed_over.delete_dropped(self.server, self.job, release, dropped)

    def _history(self) -> ReleaseHistory:
        return releases.history(self.server, self.prepared.namespace, self.prepared.release)

    def is_unrecorded(self) -> bool:
        """Return whether helm's newest revision is of this plan and still pending: helm's exit is then no verdict."""
        last = self._history().last
        return bool(last and last.is_pending and last.status != "uninstalling" and self._is_of_this_plan(last))

    def _is_of_this_plan(self, revision: ReleaseRevision) -> bool:
        """Return whether this plan made the revision, forward or back."""
        return self._is_ours(revision) or 0 < self.prepared.back_to == revision_labels.rollback_of(revision)

    def _mended(self, history: ReleaseHistory) -> ReleaseHistory:
        """Raises ReleaseBusy for a pending revision of another party."""
        last = history.last
        if last is not None and last.is_abandoned:
            self.job.tell(f"Revision {last.number} was left superseded, without a next; it is {last.status} again.")
            releases.mend(self.server, last, _ABANDONED, last.status)
            return self._history()
        if last is None or not last.is_pending or last.status == "uninstalling":
            return history  # an uninstall is simply asked for again
        found = last.read()
        # Of an earlier plan of ours, and this plan saw it so: one rollout at a time works on a component.
        is_left = last.number == self.prepared.from_revision and revision_labels.is_made_by_us(history, last)
        is_ours = is_left or self._is_of_this_plan(last)
        began = parse_datetime(found.updated) if found.updated else None
        if not is_ours and (began is None or now() - began < FOREIGN):
            raise ReleaseBusy(
                f"{self.prepared.release} is {last.status} since {found.updated[:19]}: another helm works on it, or "
                "was killed at it"
            )
        self.job.tell(f"Revision {last.number} was left {last.status}; it is recorded as failed, and helm continues.")
        releases.mend(self.server, last, _KILLED)
        return self._history()


def carry_out(
    cluster: Cluster,
    prepared: Prepared,
    *,
    direction: str,
    deadline: float,
    stop: Callable[[], bool],
    tell: Callable[[str], None],
) -> None:
    """Raises HelmError, FleetError, Refusal."""
    left = deadline - time.monotonic()
    credentials = permitting.credentials(cluster, prepared, direction=direction, seconds=left + AFTER_SECONDS)
    if (ends := credentials.expires_at()) is not None:  # helm ends before what it may do ends in the middle of it
        deadline = min(deadline, time.monotonic() + (ends - now()).total_seconds() - BEFORE_SECONDS)
    job = HelmJob(prepared.release, prepared.namespace, credentials, deadline, stop, tell)
    with registry.server_of(credentials) as server:
        permitting.check(server, prepared, direction=direction)
        carrying = ReleaseOperation(cluster, server, client.program(), prepared, job)
        try:
            if direction == "forward":
                carrying.forward()
            else:
                carrying.back()
        except HelmRefused as refused:
            if carrying.is_unrecorded():
                raise HelmUnavailable(f"helm ended before it could record how: {refused}") from refused
            raise rbac.recheck(server, refused) from refused


def _is_server_side(last: ReleaseRevision | None) -> bool:
    return bool(last and last.read().is_server_side)


def is_back(last: ReleaseRevision, target: int) -> bool:
    """Return whether helm's newest revision is the one a revert goes to, or a rollback to it."""
    if not target or last.status != releases.DEPLOYED:
        return False
    return last.number == target or revision_labels.rollback_of(last) == target
