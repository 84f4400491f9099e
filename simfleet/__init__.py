"""A simulated fleet: whole clusters in one process, with the real agent on virtual kernels, deterministic by seed.

    sim = SimCluster(seed=1, clock=SimClock())
    sim.add_node("n1", gpus=8)
    sim.add_pod("train", node="n1", gpus=8, namespace="team-llm")
    fleet = SimFleet(sim)                       # clusters.fleet.Fleet, as Setpoint

    uid = fleet.node("n1")["metadata"]["uid"]
    fleet.observe("n1", uid, Spec(uid, observe=("vm.swappiness",)))
    sim.tick(seconds=5)                         # agents, pods, reboots, controllers; no threads, no sleeping
    fleet.tune("n1", Spec(uid, mode="apply", step="s1", settings=(Wanted("vm.swappiness", "=", "10", "60"),)))
    sim.tick(seconds=5)
    assert sim.kernel("n1").sysctl("vm.swappiness") == "10"
    assert fleet.tuning("n1")["status"]["settings"][0]["state"] == "Effective"

Time is `clock`'s: `SimClock` stops between ticks, `FrozenClock(freezer)` moves a frozen `datetime` along,
`WallClock` with `live=True` and a thread that ticks is what the demo uses.

What can happen to a cluster:
    sim.nodes.set_ready("n1", is_ready=False)   sim.nodes.cordon("n1", by="alice")   sim.nodes.reboot("n1")
    sim.nodes.delete("n1")                      sim.nodes.replace("n1")              sim.nodes.keep_cordoned("n1")
    sim.drift("n1", "vm.swappiness", "100")     sim.drop_file("n1", "/etc/sysctl.d/50-x.conf", "vm.swappiness = 100")
    sim.agents.restart("n1", "lying")           (modes: AgentMode)                   sim.agents.kill("n1")
    sim.pods.workload("Job", "llm", namespace="team-llm", replicas=4, gpus=8)
    sim.pods.budget("strict", namespace="team-llm", labels={"app": "llm"}, minAvailable=4)
    sim.nodes.machine("n1").dies_at_reboot = True                                    (also kubelet_breaks)
    sim.kernel("n1").fragmentation = 0.9        # huge pages are allocated in part
    sim.faults.outage = True                    sim.faults.add("throttle", verb="patch", times=3)    sim.store.compact()
    sim.faults.add("vanish", verb="create", resource="deployments", times=1, outage_seconds=20)
    sim.after(30, lambda: sim.nodes.set_ready("n2", is_ready=False))

What comes through the API as helm and people send it, objects of any kind included, lives: Deployments, DaemonSets,
StatefulSets and Jobs make pods and roll, CustomResourceDefinitions bring their kinds, owners take dependants along.
What an image does is data (`controllers.programs`, `controllers.software`), and so is what goes wrong with it:
    sim.programs.add(Program("*/agent:2.*", crashes=True))
    sim.programs.add(Program("*/device-plugin:*", offers={"nvidia.com/gpu": "gpus"}))
The same from outside, through the API alone: a ConfigMap, see `controllers.switches`.

What can be read from it afterwards: `sim.audit` (every write, as an API server's audit log), `fleet.calls` (counts),
`sim.nodes.witness` and `sim.nodes.peak_unavailable()` (nodes out at once, at every moment).
"""

from simfleet.clock import FrozenClock, SimClock, WallClock
from simfleet.controllers.agents import AgentMode
from simfleet.core import SimCluster
from simfleet.machines.hardware import Hardware
from simfleet.memory import SimFleet

__all__ = ["AgentMode", "FrozenClock", "Hardware", "SimClock", "SimCluster", "SimFleet", "WallClock"]
