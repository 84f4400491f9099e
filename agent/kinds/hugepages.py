"""Pools of huge pages, for the node or for one NUMA node. The kubelet counts them once, when it starts."""

from __future__ import annotations

from collections.abc import Mapping

from agent.host import Host
from agent.kinds.base import EffectiveValue, Handler, WriteRefused
from contract.nodetuning import RestartAction

SIZES_KB = {"2Mi": 2048, "1Gi": 1048576}
TRIES = 4
"""Writes of the same count: each lets the kernel compact memory once more. More of them found nothing further."""


def _parse(key: str) -> tuple[int, str]:
    size, _, node = key.removeprefix("hugepages-").partition(".")
    return SIZES_KB[size], node


class Hugepages(Handler):
    restart = RestartAction.KUBELET

    def paths(self, host: Host, key: str) -> list[str]:
        """Per NUMA node where the kernel has them, so that an uneven original can be put back as it was."""
        kb, node = _parse(key)
        return host.glob(
            f"/sys/devices/system/node/{node or 'node[0-9]*'}/hugepages/hugepages-{kb}kB/nr_hugepages"
        ) or ([] if node else host.glob(self._whole(key)))

    @staticmethod
    def _whole(key: str) -> str:
        return f"/sys/kernel/mm/hugepages/hugepages-{_parse(key)[0]}kB/nr_hugepages"

    def join(self, places: Mapping[str, str]) -> str:
        return str(sum(int(count) for count in places.values()))

    def write(self, host: Host, key: str, operator: str, value: str) -> None:
        path = self.paths(host, key)[0] if _parse(key)[1] else self._whole(key)
        for _ in range(TRIES):
            host.write_text(path, value)
            if self.read(host, key).value == value:
                return

    def put_back(self, host: Host, key: str, original: EffectiveValue) -> None:
        if original.value is None:
            raise WriteRefused("the node had no pages of this size before")
        now = self.read(host, key)
        if not original.places or set(original.places) != set(now.places):
            if now.value != original.value:
                self.write(host, key, "=", original.value)
            return
        # Pools that shrink first: what they give back is what the others take.
        for path in sorted(original.places, key=lambda p: int(original.places[p]) - int(now.places[p])):
            if now.places[path] != original.places[path]:
                host.write_text(path, original.places[path])
