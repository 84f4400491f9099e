"""A real API server takes the devices that tests make up, and gives the controller those of NVIDIA's driver alone."""

from __future__ import annotations

from clusters.inventory import dra
from tests.clusters.dra_objects import DRIVER, board, instance, raw_slice


def test_the_controller_reads_the_slices_of_one_driver_and_all_claims(controller_fleet, cluster_admin):
    devices = [board(0), instance(1, "1g.10gb", 19, 0, 1, is_made=False)]
    for driver in (DRIVER, "dra.example.com"):
        raw = raw_slice("n1", devices, driver=driver)
        raw["metadata"] = {"name": raw["metadata"]["name"]}
        cluster_admin.create("resourceslices", raw)
    page = controller_fleet.list("resourceslices")
    [raw] = page.items
    part = dra.read_slice(raw)
    assert part is not None
    assert sorted((device.profile, device.is_made) for device in part.devices.values()) == [
        ("", False),
        ("1g.10gb", False),
    ]
    assert controller_fleet.list("resourceclaims").items == []
    events = list(controller_fleet.watch("resourceslices", page.resource_version, timeout=1.5))
    assert {event.type for event in events} <= {"BOOKMARK"}
