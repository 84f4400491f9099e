"""helm's own identity is refused in the middle of a component's step, on a real API server: 401, and what comes then.

Everything that helm asks takes its time on the way, so that the account goes while helm is at work.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clusters.fleet import CredentialsRefused, Forbidden
from contract import names
from tests.controlplane.admin import Admin
from tests.controlplane.plane import Plane
from tests.full.harness.client import eventually
from tests.full.harness.equipping import NAMESPACES, RIGHTS, equipped
from tests.full.harness.fault_proxy import NOTHING, Fault, FaultProxy
from tests.full.harness.helm_releases import Releases, program, whole
from tests.full.harness.kwok_fleet import KwokFleet
from tests.full.harness.site import ENDED, Site

pytestmark = [pytest.mark.full, pytest.mark.usefixtures("judged"), pytest.mark.long]
NODES = ("refused-1", "refused-2")
PATIENCE = 300.0
_serial = itertools.count(1)


@pytest.fixture(scope="module")
def site(proxied_site: Site) -> Site:
    return proxied_site


@pytest.fixture(scope="module")
def stage(site: Site, deployed: Plane, cluster_admin: Admin) -> Iterator[Releases]:
    with equipped(site, deployed, cluster_admin):
        yield Releases(deployed)
        for name, namespace in NAMESPACES.items():
            program(deployed, "uninstall", name, f"--namespace={namespace}", "--ignore-not-found", "--no-hooks")


@pytest.fixture(scope="module")
def pool(site: Site, make_fleet: Callable[..., KwokFleet]) -> int:
    make_fleet("refused", *NODES)
    return site.pool(pool="refused")


@pytest.fixture
def approved(site: Site, stage: Releases, pool: int, deployed: Plane, proxy: FaultProxy) -> Iterator[dict[str, Any]]:
    """A plan that changes Cilium, approved; what is left of its rollout is given up."""
    number = 1400 + next(_serial)
    # The budget is one, and the chart would restart two nodes' agents at once.
    values = f"{{MTU: {number}, updateStrategy: {{rollingUpdate: {{maxUnavailable: 1}}}}}}"
    revision = site.revision({}, extra=f"components:\n  cilium:\n    values: {values}\n")
    plan = site.plan(pool, revision)
    assert [f for f in plan["findings"] if f["severity"] == "block"] == []
    site.approve(plan)
    yield plan
    proxy.fault = NOTHING
    deployed.kubectl("apply", "-f", str(RIGHTS))
    for rollout in site.operator.every("rollouts"):
        if rollout["status"] not in ENDED:
            site.give_up(rollout["id"])


def waits(site: Site, rollout: str, *words: str) -> None:
    """The step waits with those words, and nothing has failed."""

    def is_waiting() -> bool:
        step = site.steps(rollout)["cilium"]
        assert step["status"] in ("queued", "applying", "verifying"), site.story(rollout)
        return all(word in step["waiting_for"] for word in words)

    eventually(is_waiting, lambda: site.story(rollout), seconds=PATIENCE)
    assert site.rollout(rollout)["status"] == "running"


def is_refused(plane: Plane, token: str) -> bool:
    somebody = Admin(plane, plane.credentials(token=token))
    try:
        somebody.get("namespaces", "default")
    except CredentialsRefused:
        return True
    except Forbidden:
        return False
    finally:
        somebody.close()
    return False


def alerts(site: Site) -> set[str]:
    return {alert["rule"] for alert in site.operator.every("alerts") if alert["status"] != "closed"}


def ends(site: Site, stage: Releases, rollout: str) -> None:
    site.until(rollout, "succeeded", seconds=PATIENCE)
    assert site.steps(rollout)["cilium"]["attempt"] == 1
    whole(stage, ["cilium"])


def test_a_token_that_is_revoked_while_helm_works_is_waited_for(
    site: Site, stage: Releases, proxy: FaultProxy, deployed: Plane, approved: dict[str, Any]
) -> None:
    proxy.fault = Fault(latency=1.0)
    rollout = site.start(approved)
    eventually(stage.pending, lambda: site.story(rollout), seconds=PATIENCE, pause=0.05)
    proxy.fault = Fault(latency=6.0)  # an API server believes a token for 10 s after it looked
    deployed.kubectl("delete", "serviceaccount", names.HELM_SERVICE_ACCOUNT, "-n", names.NAMESPACE)
    waits(site, rollout, "credentials")
    proxy.fault = NOTHING
    waits(site, rollout, names.HELM_SERVICE_ACCOUNT, "setpoint-components.yaml")
    eventually(lambda: "rollout-credential-refused" in alerts(site), lambda: alerts(site), seconds=PATIENCE)

    deployed.kubectl("apply", "-f", str(RIGHTS))
    ends(site, stage, rollout)


def test_an_issuer_that_is_refused_is_waited_for_until_another_token_is_given(
    site: Site, stage: Releases, deployed: Plane, cluster_admin: Admin, approved: dict[str, Any]
) -> None:
    before = cluster_admin.token(names.HELM_ISSUER_SERVICE_ACCOUNT)
    site.setpoint.manage("helm_credential", str(site.cluster["name"]), text=before)
    deployed.kubectl("delete", "serviceaccount", names.HELM_ISSUER_SERVICE_ACCOUNT, "-n", names.NAMESPACE)
    deployed.kubectl("apply", "-f", str(RIGHTS))  # the same name, and no token of before is its own
    eventually(lambda: is_refused(deployed, before))  # an API server believes a token for 10 s after it looked
    rollout = site.start(approved)
    waits(site, rollout, "credentials", "401")

    issuer = cluster_admin.token(names.HELM_ISSUER_SERVICE_ACCOUNT)
    site.setpoint.manage("helm_credential", str(site.cluster["name"]), text=issuer)
    ends(site, stage, rollout)


def test_an_address_that_changes_in_the_middle_of_a_step_is_waited_for(
    site: Site, stage: Releases, proxy: FaultProxy, deployed: Plane, cluster_admin: Admin, approved: dict[str, Any]
) -> None:
    """The credential for helm is not sent to where it was not given for."""
    proxy.fault = Fault(statuses=(503,))
    rollout = site.start(approved)
    moved = {"server": deployed.url, "ca": deployed.authority.pem, "token": cluster_admin.controller_token()}
    site.admin.post(f"clusters/{site.cluster['id']}/actions/rotate-credential", moved)
    waits(site, rollout, "another address")

    issuer = cluster_admin.token(names.HELM_ISSUER_SERVICE_ACCOUNT)
    site.setpoint.manage("helm_credential", str(site.cluster["name"]), text=issuer)
    ends(site, stage, rollout)
