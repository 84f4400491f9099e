"""Objects that an older definition in the cluster does not know whole."""

from __future__ import annotations

import pytest

from tests.components.kube import Kube
from tests.components.plans.comparing import comparison, manifest, there


def test_an_object_with_fields_that_an_older_definition_lacks_is_not_tried_and_blocks_nothing(kube: Kube) -> None:
    """The GPU Operator's hook renews its definitions before helm v4 applies what needs them."""
    custom = manifest("Thing", api_version="example.com/v1", spec={"newer": 1})
    there(kube, custom)
    refusal = "failed to create typed patch object (space/a): .spec.newer: field not declared in schema"
    kube.say("PATCH", "/apis/example.com/v1/namespaces/space/things/a", {"kind": "Status", "message": refusal}, 500)

    [difference] = comparison(kube, is_server_side=True).compare([custom], [custom])

    assert (difference.change, difference.note.severity, difference.note.code) == ("unvalidated", "warn", "not-tried")


@pytest.mark.parametrize(("is_server_side", "codes"), [(True, ["undeclared"]), (False, [])])
def test_fields_that_the_api_server_leaves_out_of_a_new_object_are_what_helm_v4_is_refused(
    kube: Kube, is_server_side: bool, codes: list[str]
) -> None:
    """Found by the charts: an older GPU Operator had left its definitions. Creating drops them without a word."""
    custom = manifest("Thing", api_version="example.com/v1", spec={"known": 1, "newer": 1, "empty": None})
    path = "/apis/example.com/v1/namespaces/space/things"
    kube.say("GET", f"{path}/a", {"kind": "Status", "code": 404, "message": "not found"}, status=404)
    kube.say("POST", path, lambda how: (201, {**how["body"], "spec": {"known": 1, "defaulted": 2}}))

    [difference] = comparison(kube, is_server_side=is_server_side).compare([custom])

    assert difference.change == "created"
    assert ([difference.note.code] if difference.note else []) == codes
    if difference.note:
        assert difference.note.severity == "warn"
        assert "spec.newer" in difference.note.title
        assert "known" not in difference.note.title
        assert "empty" not in difference.note.title
