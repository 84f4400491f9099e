"""Rubbish in objects of schedulers."""

from __future__ import annotations

import pytest

from gpus.capacity import observed


@pytest.mark.parametrize(
    "status",
    [
        {"conditions": [{"type": "Admitted", "status": "True", "lastTransitionTime": "9999-12-31T23:59:59Z"}]},
        {"conditions": [{"type": "Admitted", "status": "True", "lastTransitionTime": "0001-01-01T00:00:00Z"}]},
        {"conditions": [{"type": "Admitted", "status": "True", "lastTransitionTime": "x" * 100_000}]},
        {"conditions": [{"type": "Evicted", "status": "True", "reason": "\0" * 9000, "lastTransitionTime": None}]},
        {"conditions": ["no condition", None, 7], "schedulingStats": {"evictions": [{"count": -5}, 3, None]}},
        {"conditions": {"type": "Admitted"}, "schedulingStats": [], "admission": "none"},
        {"schedulingStats": {"evictions": [{"count": 10**30, "reason": f"r{n}"} for n in range(300)]}},
    ],
)
def test_rubbish_in_a_status_is_bounded_and_not_believed(clock, status):
    raw = {
        "metadata": {
            "uid": "u" * 500,
            "name": "n" * 500,
            "namespace": "ml",
            "creationTimestamp": "2999-01-01T00:00:00Z",
        },
        "spec": {"queueName": "q" * 999, "priority": 10**12},
        "status": status,
    }
    seen = observed.workload(raw, clock.at, pods=[[1, 8]], profile="")
    assert seen.created_at == clock.at
    for at in (seen.admitted_at, seen.evicted_at, seen.ended_at, seen.running_at):
        assert at is None or at == clock.at
    assert (len(seen.uid), len(seen.name), len(seen.local_queue), seen.priority) == (64, 253, 253, None)
    assert len(seen.reason) <= 80
    assert "\0" not in seen.reason
    assert len(seen.tallied) <= observed.MOST_REASONS
    assert all(0 < count <= observed.MOST_GPUS for count in seen.tallied.values())
    with pytest.raises(ValueError, match="no amount"):
        observed.workload(raw, clock.at, pods=[[10**9, 8]], profile="")
