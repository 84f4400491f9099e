"""A statement as CSV, and its charges in FOCUS 1.3, the FinOps Open Cost and Usage Specification.

FOCUS names columns, formats and which of them may be empty (focus.finops.org/focus-specification, dataset Cost and
Usage). Setpoint issues no invoice, so BilledCost is 0 and what usage costs is EffectiveCost: merged with a provider's
own data, nothing is billed twice.
"""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, timedelta
from decimal import ROUND_HALF_UP, Decimal
from urllib.parse import urlsplit

from django.conf import settings

from accounts.models import User
from clusters.reports.selectors import clusters_visible_to
from common.errors import Invalid
from compliance.reports.exports import cell
from gpus.showback import charges, prices, rules, teams
from gpus.showback.charges import TEAM, Charge
from gpus.showback.periods import Period, month_of
from gpus.showback.statement import NAMES, Line, Statement

CENT = Decimal("0.01")
FOCUS_VERSION = "1.3"
COLUMNS = (
    "line", "team", "gpu_hours", "effective_gpu_hours", "active_gpu_hours", "held_idle_gpu_hours",
    "no_telemetry_gpu_hours", "gpu_cost", "held_idle_cost", "kwh", "energy_cost", "cost", "currency",
    "unpriced_gpu_hours", "share_percent", "previous_gpu_hours", "previous_cost", "budget", "budget_left",
)  # fmt: skip
FOCUS_COLUMNS = (
    "BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd",
    "BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargeFrequency", "ChargePeriodEnd",
    "ChargePeriodStart", "ConsumedQuantity", "ConsumedUnit", "ContractedCost", "ContractedUnitPrice", "EffectiveCost",
    "HostProviderName", "InvoiceIssuerName", "ListCost", "ListUnitPrice", "PricingCategory", "PricingQuantity",
    "PricingUnit", "ProviderName", "PublisherName", "ServiceCategory", "ServiceName", "ServiceProviderName",
    "ServiceSubcategory", "SkuId", "SkuMeter", "SkuPriceDetails", "SkuPriceId", "SubAccountId", "SubAccountName",
    "x_Cluster", "x_GpuModel", "x_HeldIdleGpuHours", "x_Line",
)  # fmt: skip
"""In the order of the specification: by name, the installation's own with x_ last."""
PROVIDER = "Setpoint"
_CURRENCY = re.compile(r"[A-Z]{3}")


def rounded(amount: Decimal | None, unit: Decimal = CENT) -> Decimal | None:
    """Round for display: the one place where money is rounded."""
    return None if amount is None else amount.quantize(unit, ROUND_HALF_UP)


def plain(amount: Decimal | None) -> str:
    """Write a decimal without an exponent; empty: null."""
    if amount is None:
        return ""
    text = f"{amount:f}"
    return (text.rstrip("0").rstrip(".") or "0") if "." in text else text


# ── The statement ─────────────────────────────────────────────────────────────────────────────────────────────────────
def record(line: Line, currency: str) -> dict[str, str | Decimal | None]:
    """Return the figures of one line, rounded, as files and REST have them."""
    before = line.previous
    return {
        "line": line.kind,
        "team": line.name if line.kind == TEAM else "",
        "gpu_hours": rounded(line.gpu_hours),
        "effective_gpu_hours": rounded(line.effective),
        "active_gpu_hours": rounded(line.active),
        "held_idle_gpu_hours": rounded(line.held_idle),
        "no_telemetry_gpu_hours": rounded(line.unknown),
        "gpu_cost": rounded(line.gpu_cost),
        "held_idle_cost": rounded(line.idle_cost),
        "kwh": rounded(line.kwh),
        "energy_cost": rounded(line.energy_cost),
        "cost": rounded(line.cost),
        "currency": currency,
        "unpriced_gpu_hours": rounded(line.unpriced),
        "share_percent": None if line.share is None else rounded(100 * line.share),
        "previous_gpu_hours": rounded(before.gpu_hours) if before else None,
        "previous_cost": rounded(before.cost) if before else None,
        "budget": rounded(line.budget),
        "budget_left": rounded(line.rest),
    }


def as_csv(statement: Statement) -> str:
    """One row a line, the capacity last."""
    rows = [record(line, statement.currency) for line in (*statement.lines, statement.total)]
    return _csv(COLUMNS, ([_cell(row[name]) for name in COLUMNS] for row in rows))


def _cell(value: str | Decimal | None) -> str:
    return f"{value:f}" if isinstance(value, Decimal) else cell(value)


def _csv(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(columns)
    writer.writerows(rows)
    return out.getvalue()


# ── FOCUS ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
def as_focus(user: User, period: Period) -> str:
    """Each day's charges by line, cluster and GPU model; what has no price is no charge. Raises Invalid."""
    currency = prices.currency()
    if not _CURRENCY.fullmatch(currency):
        reason = f"FOCUS wants a code of ISO 4217, and SETPOINT_GPU_CURRENCY is {currency!r}."
        raise Invalid("No FOCUS file can be written.", fields={"as": [reason]})
    names, clusters = teams.names(), dict(clusters_visible_to(user).values_list("pk", "name"))
    book, rule_list = prices.book(), rules.stored(teams.current().rules)
    entries = charges.charges(user, period, book, rule_list, daily=True)
    rows: list[Mapping[str, str]] = []
    for entry in sorted(entries, key=lambda charge: (charge.day, str(charge.cluster_id), charge.model, charge.line)):
        team = names.get(entry.line.team, "")
        shared = _shared(entry, team, currency, clusters.get(entry.cluster_id, ""))
        if entry.price is not None and entry.gpu_hours:
            rows.append(shared | _gpu_row(entry, entry.price))
        if entry.energy is not None and entry.kwh:
            rows.append(shared | _energy_row(entry))
    return _csv(FOCUS_COLUMNS, ([_text(row.get(name, "")) for name in FOCUS_COLUMNS] for row in rows))


def _text(value: str) -> str:
    return value if value.lstrip("-").replace(".", "", 1).isdecimal() else cell(value)


def _instant(day: date) -> str:
    return f"{day.isoformat()}T00:00:00Z"


def _shared(entry: Charge, team: str, currency: str, cluster: str) -> dict[str, str]:
    month = month_of(entry.day)
    return {
        "BilledCost": "0",
        "BillingAccountId": urlsplit(settings.BASE_URL).hostname or PROVIDER,
        "BillingAccountName": PROVIDER,
        "BillingCurrency": currency,
        "BillingPeriodStart": _instant(month.start),
        "BillingPeriodEnd": _instant(month.end),
        "ChargeCategory": "Usage",
        "ChargeFrequency": "Usage-Based",
        "ChargePeriodStart": _instant(entry.day),
        "ChargePeriodEnd": _instant(entry.day + timedelta(days=1)),
        "HostProviderName": PROVIDER,
        "InvoiceIssuerName": PROVIDER,
        "PricingCategory": "Standard",
        "ProviderName": PROVIDER,
        "PublisherName": PROVIDER,
        "ServiceProviderName": PROVIDER,
        "SubAccountId": f"team-{entry.line.team}" if entry.line.kind == TEAM else "",
        "SubAccountName": team,
        "x_Cluster": cluster,
        "x_GpuModel": entry.model,
        "x_Line": entry.line.kind,
    }


def _gpu_row(entry: Charge, price: Decimal) -> dict[str, str]:
    of = "" if entry.line.kind == TEAM else f", {NAMES[entry.line.kind].lower()}"
    details = {"GpuCount": 1, "x_GpuModel": entry.model}
    return {
        "ChargeDescription": f"GPU-hours of {entry.model}{of}",
        "ServiceCategory": "Compute",
        "ServiceSubcategory": "Containers",
        "ServiceName": "GPUs",
        "SkuId": f"gpu/{entry.model}",
        "SkuMeter": "GPU-hours",
        "SkuPriceDetails": json.dumps(details),
        "SkuPriceId": f"gpu/{entry.model}",
        "ConsumedQuantity": plain(entry.gpu_hours),
        "ConsumedUnit": "GPU-Hours",
        "PricingQuantity": plain(entry.gpu_hours),
        "PricingUnit": "GPU-Hours",
        "x_HeldIdleGpuHours": plain(entry.hours["held"]),
        **_costs(price, entry.gpu_hours),
    }


def _energy_row(entry: Charge) -> dict[str, str]:
    assert entry.energy is not None
    price, pue = entry.energy
    return {
        "ChargeDescription": f"Energy of GPUs, with a PUE of {plain(pue)}",
        "ServiceCategory": "Other",
        "ServiceSubcategory": "Other (Other)",
        "ServiceName": "Energy of GPUs",
        "SkuId": "energy",
        "SkuMeter": "Energy",
        "SkuPriceId": "energy",
        "ConsumedQuantity": plain(entry.kwh),
        "ConsumedUnit": "Kilowatt-Hours",
        "PricingQuantity": plain(entry.kwh * pue),
        "PricingUnit": "Kilowatt-Hours",
        **_costs(price, entry.kwh * pue),
    }


def _costs(price: Decimal, quantity: Decimal) -> dict[str, str]:
    cost = plain(price * quantity)
    each = plain(price)
    return {
        "ListUnitPrice": each,
        "ContractedUnitPrice": each,
        "ListCost": cost,
        "ContractedCost": cost,
        "EffectiveCost": cost,
    }
