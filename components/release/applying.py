"""Apply of a prepared component: idempotent, because a worker may die at any line and another continues.

What another party changed since the plan, an upgrade by hand for one, is not overwritten, and only the manifest that
was approved is installed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from clusters.connection import registry
from clusters.fleet import Conflict
from clusters.kube import discovery
from clusters.kube.apiserver import Call
from clusters.models import Cluster
from common.clock import now
from components.access import permitting
from components.blast.judgment import REMOVE
from components.catalog import values_check
from components.charts import archives
from components.helm import client, rbac, recorded, releases, rendering
from components.helm.client import HelmJob, HelmRefused, HelmUnavailable
from components.helm.releases import ReleaseHistory, ReleaseRevision
from components.helm.rendering import Manifest, Rendered
from components.plans import adopt, impact
from components.plans.diff import Comparison
from components.plans.prepared import Prepared
from components.release import approved_entry, definitions, revision_labels
from components.release.component_rendering import secret_reader, stand_ins
from components.release.preparing import ENFORCE
from components.release.release_operation import ReleaseOperation, is_server_side
from components.release.reverting import Revert

AFTER_SECONDS = 60.0
"""How much longer than helm its token lives: what it left is looked at afterwards."""
BEFORE_SECONDS = 20.0
"""How long before its credential ends helm is stopped at the latest: it records that it failed meanwhile."""


@dataclass(frozen=True, slots=True)
class Apply(ReleaseOperation):
    def run(self) -> None:
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
            self.program.upgrade(job, content, given, labels=labels, is_server_side=is_server_side(last))
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
        listed = {
            (difference.kind, difference.name) for difference in self.prepared.objects if difference.change == "created"
        }
        absent = [compared.wanted for compared in comparison.absent(approved.crds)]
        if gone := [manifest for manifest in absent if (manifest.kind, manifest.name) not in listed]:
            raise HelmRefused(
                f"{gone[0].kind} {gone[0].name} of the crds/ of {self.prepared.component} is not there, and the plan "
                "does not list it; plan again"
            )
        for name in definitions.make(self.server, self.job, [manifest.raw for manifest in absent]):
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
        for kind in self.prepared.destroys:
            assert served is not None
            there = impact.count(self.server, served, kind.definition, kind.kind)
            if kind.count >= 0 and not 0 <= there <= kind.count:
                now_there = f"there are {there:,} of them" if there >= 0 else "counting them is not permitted"
                raise HelmRefused(
                    f"{self.prepared.component} removes the kind {kind.kind} and its objects, of which the plan saw "
                    f"{kind.count:,}: now {now_there}; plan again"
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
        if last is None or not self._is_ours(last) or not (others := recorded.others(approved, last.read())):
            return
        message = f"helm installed other objects than what was approved: {recorded.listed(others)}"
        if self.prepared.is_blind:
            self.job.tell(f"{message}. The plan said that what the chart looks up counted as absent.")
            return
        releases.mend(self.server, last, f"Setpoint: {message}")
        raise HelmRefused(
            f"{message}. The chart renders otherwise when helm installs it, by what it looks up in the cluster, by "
            "chance or by the clock; revert, and do not trust this archive"
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
        level = approved_entry.component(self.prepared).pod_security
        meta = {"name": self.prepared.namespace, "labels": {ENFORCE: level}}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
        path = f"/api/v1/namespaces/{discovery.segment(self.prepared.namespace)}"
        if self.server.send(Call("get", "namespaces", self.prepared.namespace), "GET", path).status == 200:
            return
        try:
            call = Call("create", "namespaces", self.prepared.namespace)
            self.server.ask(call, "POST", "/api/v1/namespaces", body=body)
        except Conflict:
            return  # another party was faster


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
    if direction == "forward":
        approved_entry.component(prepared)
    left = deadline - time.monotonic()
    credentials = permitting.credentials(cluster, prepared, direction=direction, seconds=left + AFTER_SECONDS)
    if (ends := credentials.expires_at()) is not None:  # helm ends before what it may do ends in the middle of it
        deadline = min(deadline, time.monotonic() + (ends - now()).total_seconds() - BEFORE_SECONDS)
    job = HelmJob(prepared.release, prepared.namespace, credentials, deadline, stop, tell)
    with registry.server_of(credentials) as server:
        permitting.check(server, prepared, direction=direction)
        kind = Apply if direction == "forward" else Revert
        carrying = kind(cluster, server, client.program(), prepared, job)
        try:
            carrying.run()
        except HelmRefused as refused:
            if carrying.is_unrecorded():
                raise HelmUnavailable(f"helm ended before it could record how: {refused}") from refused
            raise rbac.recheck(server, refused) from refused
