"""Alert rules over the demo's history: each one is evaluated, so that no page says that it cannot be."""

from __future__ import annotations

import pytest

from clusters.models import Cluster
from common import hooks
from config.demo.fleet import WORN
from gpus.alerts.host_loads import DISK, IO
from gpus.services import host_loads, polling


@pytest.mark.usefixtures("world")
class TestAlertConditions:
    def test_each_rule_is_evaluated_in_each_cluster_that_answers(self) -> None:
        for reading, read in ((polling, polling.tick), (host_loads, host_loads.refresh)):  # as the background does
            reading.reconcile()
            for pk in reading.due():
                read(pk)
        clusters = dict(Cluster.objects.filter(reach="reachable").values_list("pk", "name"))
        blind, conditions = {}, {}
        for pk, name in clusters.items():
            for rule in hooks.alert_rules():
                result = rule.look(pk, rule.threshold.default if rule.threshold else 0.0)
                if result.blind:
                    blind[name, rule.name] = result.blind
                conditions[name, rule.name] = result.conditions

        assert len(clusters) == 4
        assert not blind, blind
        for rule in (DISK, IO):
            worn = f"atlas-training-gpu-{WORN:03d}"
            assert [each.name for each in conditions["atlas-training", rule]] == [worn]
