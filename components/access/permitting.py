"""Check of helm's rights for a component, when a plan is made and once more just before helm runs.

A missing right is found beforehand, by name, with the role that grants it: never as a refusal in the middle of helm's
work. Making helm a cluster administrator is a choice of the cluster's own administrator, with an end: where such a
credential is stored, a component that lacks rights runs with it, its plan says so, and no other plan's step ever does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from clusters.connection import helm_credentials
from clusters.fleet import FleetRefused, FleetUnavailable, Forbidden
from clusters.kube.apiserver import ApiServer
from clusters.models import Cluster, HelmCredential
from clusters.net.credentials import Credentials
from components.access import asking
from components.access.rights import Rights
from components.plans.authority import Authority, Right, undoing
from components.plans.prepared import BLOCK, WARN, PlanNote, Prepared
from contract import names

ASKS = "setpoint-asks"
"""The role with which the identity that plans asks about helm's (deploy/setpoint-components.yaml)."""


def assess(cluster: Cluster, server: ApiServer, needed: Rights | None) -> tuple[Authority | None, list[PlanNote]]:
    """None where nothing is done. As the identity that plans. Raises FleetUnavailable."""
    if needed is None:
        return None, []
    granted = authority(cluster, server, needed)
    return granted, list(notes(granted, needed, cluster))


def authority(cluster: Cluster, server: ApiServer, needed: Rights) -> Authority:
    """Return helm's authority, asked as the identity that plans. Raises FleetUnavailable."""
    is_apart = HelmCredential.objects.filter(cluster=cluster).exists()
    account = names.HELM_SERVICE_ACCOUNT if is_apart else ""
    try:
        own = Authority(account, asking.check_rights(server, needed.needs, account=account))
    except FleetUnavailable:
        raise
    except FleetRefused:
        return Authority(account, needed.needs, is_known=False)
    until = helm_credentials.administrator_until(cluster) if own.lacking else None
    if until is None:
        return own
    return Authority(names.HELM_ADMIN_SERVICE_ACCOUNT, own.rights, until.isoformat(timespec="seconds"))


def notes(granted: Authority, needed: Rights, cluster: Cluster) -> Iterator[PlanNote]:
    component = needed.component
    command = f"manage.py component_rights {cluster} {component}"
    who = granted.account or "Setpoint"
    if granted.administrator_until:
        title = f"helm is a cluster administrator for {component}, until {_moment(granted.administrator_until)}"
        detail = (
            f"It runs as {granted.account}, because {names.HELM_SERVICE_ACCOUNT} lacks "
            f"{asking.lacking_in_words(granted.lacking)}. "
            "No role bounds what its chart does then. A revert after that moment needs the rights, or such a "
            "credential."
        )
        yield PlanNote(WARN, "cluster-admin", title, detail)
        return
    if not granted.is_known:
        title = f"Whether {who} has the rights for {component} could not be asked"
        detail = (
            f"Apply deploy/setpoint-components.yaml again: it has the role {ASKS}. helm's own identity asks before it."
        )
        yield PlanNote(WARN, "rights-unknown", title, detail)
        return
    if lacking := [right for right in granted.lacking if not right.danger]:
        title = f"{who} lacks rights for {component}: {asking.lacking_in_words(lacking)}"
        detail = f"The cluster's administrator applies its role, which the plan shows and `{command}` prints."
        yield PlanNote(BLOCK, "rights", title, detail)
    if lacking := [right for right in granted.lacking if right.danger]:
        title = f"{component} needs dangerous rights, which {who} lacks: {asking.lacking_in_words(lacking)}"
        detail = (
            f"{_dangers(lacking)} Its role leaves them out. The cluster's administrator gives them with `{command} "
            "--dangerous`, or makes helm a cluster administrator for a while with "
            f"`manage.py component_rights {cluster} --cluster-admin --for 2h`."
        )
        yield PlanNote(BLOCK, "rights-dangerous", title, detail)
    if dangerous_held := [right for right in granted.dangerous if not right.lacks]:
        title = f"{who} holds dangerous rights for {component}"
        yield PlanNote(WARN, "rights-dangerous", title, _dangers(dangerous_held))


def credentials(cluster: Cluster, prepared: Prepared, *, direction: str, seconds: float) -> Credentials:
    """Return credentials for one run: an administrator's only where the plan names it.

    Raises CredentialUnreadable, FleetError.
    """
    granted = prepared.authority
    if granted is None or not granted.administrator_until:
        return helm_credentials.for_run(cluster, seconds=seconds)
    if direction != "forward" and helm_credentials.administrator_until(cluster) is None:
        return helm_credentials.for_run(cluster, seconds=seconds)  # its rights may be there by now, and are asked
    return helm_credentials.for_run_as_administrator(cluster)


def check(server: ApiServer, prepared: Prepared, *, direction: str) -> None:
    """Check the rights as helm's own identity, just before it runs.

    Raises Forbidden that names the missing rights, FleetUnavailable.
    """
    if prepared.authority is None or (direction == "forward" and prepared.action == "none"):
        return
    rights: Sequence[Right] = prepared.authority.rights
    if direction != "forward" and not prepared.back_to:
        rights = undoing(rights)
    if lacking := [right for right in asking.check_rights(server, rights) if right.lacks]:
        raise Forbidden(
            f"helm has not begun: the rights for {prepared.component} lack {asking.lacking_in_words(lacking)}; "
            "apply its role, which the plan shows"
        )


def _dangers(rights: Sequence[Right]) -> str:
    dangers = list(dict.fromkeys(f"{right.why}: {right.danger}." for right in rights))
    return " ".join([*dangers[:4], *([f"And {len(dangers) - 4} more."] if len(dangers) > 4 else [])])


def _moment(iso: str) -> str:
    return f"{iso[:10]} {iso[11:16]} UTC"
