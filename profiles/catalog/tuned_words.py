"""Kernel arguments of isolated CPUs as TuneD derives them from `isolated_cores`: written, and read again."""

from __future__ import annotations

from collections.abc import Mapping

from contract.isolation import DOMAIN, SERVICES

VARIABLE = "isolated_cores"
_ISOLATED, _OTHERS = f"${{{VARIABLE}}}", f"${{f:cpulist_invert:${{{VARIABLE}}}}}"


def words(*, has_domain: bool, keeps_services: bool) -> str:
    """Return the value of an option of the plugin bootloader; TuneD inverts by the CPUs of the machine it runs on."""
    flags = "managed_irq,domain" if has_domain else "managed_irq"
    out = f"+isolcpus={flags},{_ISOLATED} nohz_full={_ISOLATED} rcu_nocbs={_ISOLATED} irqaffinity={_OTHERS}"
    return f"{out} systemd.cpu_affinity={_OTHERS}" if keeps_services else out


FLAGS: Mapping[str, tuple[str, ...]] = {
    words(has_domain=DOMAIN in flags, keeps_services=SERVICES in flags): flags
    for flags in ((), (DOMAIN,), (SERVICES,), (DOMAIN, SERVICES))
}
"""Per such value the words that a value of cpu.isolated has before its list."""
