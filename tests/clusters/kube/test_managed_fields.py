"""Fields by their owner, read from managedFields as API servers write them."""

from __future__ import annotations

from clusters.kube import managed_fields

RAW = {
    "metadata": {
        "name": "vision",
        "labels": {"ours": "1", "theirs": "2"},
        "managedFields": [
            {
                "manager": "setpoint",
                "operation": "Apply",
                "fieldsV1": {
                    "f:metadata": {"f:labels": {"f:ours": {}}},
                    "f:spec": {
                        "f:weight": {},
                        "f:gone": {},
                        "f:limits": {'k:{"type":"Pod"}': {".": {}, "f:type": {}, "f:max": {".": {}, "f:cpu": {}}}},
                        "f:scopes": {'v:"BestEffort"': {}},
                        "f:levels": {},
                    },
                },
            },
            {"manager": "setpoint", "operation": "Update", "fieldsV1": {"f:spec": {"f:state": {}}}},
            {
                "manager": "setpoint",
                "operation": "Apply",
                "subresource": "status",
                "fieldsV1": {"f:status": {"f:state": {}}},
            },
            {"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {"f:spec": {"f:weight": {}, "f:x": {}}}},
        ],
    },
    "spec": {
        "weight": 4,
        "state": "Open",
        "x": 1,
        "limits": [{"type": "Pod", "max": {"cpu": "1", "memory": "1Gi"}}, {"type": "Container"}],
        "scopes": ["NotTerminating", "BestEffort"],
        "levels": [{"nodeLabel": "a"}],
    },
    "status": {"state": "Open"},
}


def test_only_what_was_applied_is_ours():
    assert managed_fields.fields(RAW) == {
        "metadata": {"labels": {"ours": "1"}},
        "spec": {
            "weight": 4,
            "limits": [{"type": "Pod", "max": {"cpu": "1"}}],
            "scopes": ["BestEffort"],
            "levels": [{"nodeLabel": "a"}],
        },
    }


def test_who_owns_a_field():
    assert managed_fields.holders(RAW, ("spec", "weight")) == ["kubectl-edit", "setpoint"]
    assert managed_fields.holders(RAW, ("spec", "limits")) == ["setpoint"]
    assert managed_fields.holders(RAW, ("spec", "nothing")) == []


def test_an_object_that_we_never_applied_has_nothing_of_ours():
    assert managed_fields.fields({"metadata": {"name": "a"}, "spec": {"x": 1}}) == {}
    assert managed_fields.fields(RAW, "nobody") == {}


def test_a_record_that_is_damaged_is_read_as_far_as_it_goes():
    entry = {"manager": "setpoint", "operation": "Apply", "fieldsV1": {"f:spec": {"k:{": {}, "f:a": {"f:b": {}}}}}
    raw = {"metadata": {"managedFields": [entry, {}]}, "spec": {"a": 1}}

    assert managed_fields.fields(raw) == {"spec": {"a": 1}}
