"""Rows of a fleet that rolled out say what their objects say: comparing values finds nothing where nothing is wrong."""

from __future__ import annotations

from types import SimpleNamespace

from clusters.models import NodeTuning, RowCheck
from clusters.watch.streams import KINDS, WatchTimings
from clusters.watch.value_comparison import ComparingValues


def test_after_a_rollout_and_a_revert_no_value_differs(make_world):
    world = make_world(nodes=4, gpus=8)
    world.run(world.started(world.plan(world.revision({"vm.swappiness": "10", "cmdline.iommu": "pt"}))))
    world.tick(60)
    watched = SimpleNamespace(cluster=world.cluster, fleet=world.fleet)
    assert NodeTuning.objects.exclude(protocol=0).count() == 4, "agents have answered, or this tries too little"
    values = ComparingValues(watched, WatchTimings())  # type: ignore[arg-type]
    compared = {kind: values.turn(kind) for kind in KINDS}
    assert compared["nodes"] == compared["nodetunings"] == 4
    assert not RowCheck.objects.exclude(altered=0, unmended=0).exists()

    NodeTuning.objects.filter(node__name="n1").update(observed={"vm.swappiness": "60"}, spec_step="")
    assert values.turn("nodetunings") == 4
    tuning = NodeTuning.objects.get(node__name="n1")
    assert tuning.observed["vm.swappiness"] == "10"
    assert tuning.spec_step
    assert RowCheck.objects.get(kind="nodetunings").altered == 1
