"""A 403 that helm reports: final when the right is missing, tried again when the API server had only just started."""

from __future__ import annotations

import pytest

from components.helm import rbac
from components.helm.errors import HelmRefused, HelmUnavailable, translated
from tests.components.kube import Kube

REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
SAID = (
    'Error: UPGRADE FAILED: could not get information about the resource DaemonSet "agent" in namespace "cni": '
    'daemonsets.apps "agent" is forbidden: User "system:serviceaccount:setpoint-system:setpoint" cannot get resource '
    '"daemonsets" in API group "apps"'
)


def answer(allowed: bool) -> dict:
    return {"kind": "SelfSubjectAccessReview", "status": {"allowed": allowed}}


@pytest.mark.parametrize(("where", "namespace"), [(' in the namespace "cni"', "cni"), (" at the cluster scope", "")])
def test_a_right_that_is_there_now_is_tried_again(where, namespace):
    kube = Kube()
    kube.say("POST", REVIEWS, answer(True), 201)
    judged = rbac.recheck(kube, translated(SAID + where, 1))
    assert isinstance(judged, HelmUnavailable)
    assert not judged.is_final
    wanted = {"verb": "get", "group": "apps", "resource": "daemonsets"} | (
        {"namespace": namespace} if namespace else {}
    )
    assert [request["body"]["spec"]["resourceAttributes"] for request in kube.asked] == [wanted]


def test_a_right_that_is_missing_ends_the_step_in_helms_own_words():
    kube = Kube()
    kube.say("POST", REVIEWS, answer(False), 201)
    refused = translated(SAID + " at the cluster scope", 1)
    assert rbac.recheck(kube, refused) is refused


def test_a_server_that_does_not_answer_is_asked_again_later():
    kube = Kube()
    kube.say("POST", REVIEWS, {"kind": "Status", "message": "starting"}, 503)
    judged = rbac.recheck(kube, translated(SAID + " at the cluster scope", 1))
    assert isinstance(judged, HelmUnavailable)


def test_any_other_refusal_asks_nobody():
    kube = Kube()
    refused = HelmRefused("admission webhook denied the request: no")
    assert rbac.recheck(kube, refused) is refused
    assert kube.asked == []
