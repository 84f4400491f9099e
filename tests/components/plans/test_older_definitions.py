"""Objects that an older definition in the cluster does not know whole."""

from __future__ import annotations

from tests.components.kube import Kube
from tests.components.plans.comparing import comparison, manifest, there


def test_an_object_with_fields_that_an_older_definition_lacks_is_not_tried_and_blocks_nothing(kube: Kube) -> None:
    """The GPU Operator's hook renews its definitions before helm v4 applies what needs them."""
    one = manifest("Thing", api_version="example.com/v1", spec={"newer": 1})
    there(kube, one)
    said = "failed to create typed patch object (space/a): .spec.newer: field not declared in schema"
    kube.say("PATCH", "/apis/example.com/v1/namespaces/space/things/a", {"kind": "Status", "message": said}, 500)

    [found] = comparison(kube, is_server_side=True).compare([one], [one])

    assert (found.change, found.note.severity, found.note.code) == ("unvalidated", "warn", "not-tried")
