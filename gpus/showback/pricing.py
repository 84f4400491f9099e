"""Setting and withdrawing prices. What a day that is over cost never changes; both are audited."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q, QuerySet

from accounts.models import User
from accounts.permissions import GLOBAL, Role, may, require
from audit import services as audit
from clusters.models import Cluster
from clusters.reports.selectors import clusters_visible_to
from common.clock import now
from common.errors import Invalid, WrongState
from gpus.metrics import mig
from gpus.models import GpuPrice
from gpus.showback import periods, prices
from gpus.storage import node_snapshot

Kind = GpuPrice.Kind
LEAST, MOST = Decimal(0), Decimal(1_000_000)
PLACES = 6
MOST_PUE = Decimal(10)
FURTHEST = timedelta(days=3660)


def may_change(user: User) -> bool:
    return may(user, Role.ADMIN, GLOBAL)


def require_change(user: User) -> None:
    require(user, Role.ADMIN, GLOBAL, "set prices and teams")


def visible_to(user: User) -> QuerySet[GpuPrice]:
    """Return all prices but those of clusters that the person does not see: the newest of each first."""
    rows = GpuPrice.objects.select_related("cluster")
    return rows.filter(Q(cluster=None) | Q(cluster__in=clusters_visible_to(user)))


def set_price(
    *,
    by: User,
    kind: str,
    amount: Decimal,
    valid_from: date,
    model: str = "",
    cluster: Cluster | None = None,
    pue: Decimal = Decimal(1),
) -> GpuPrice:
    """Add a price. Raises NotAllowed, Invalid."""
    require_change(by)
    model = node_snapshot.model_name(model.strip()) if model.strip() else ""
    row = GpuPrice(kind=kind, model=model, cluster=cluster, valid_from=valid_from, amount=amount, pue=pue)
    if wrong := _objections(row):
        raise Invalid("The price cannot be set so.", fields=wrong)
    row.created_by = audit.actor_of(by)
    try:
        with transaction.atomic():
            row.save()
            audit.record(by=by, action="gpu_price.set", **_subject(row), after=fields_of(row))
    except IntegrityError as error:
        raise Invalid(
            "The price cannot be set so.",
            fields={"valid_from": [f"There is one from {valid_from} already: withdraw it first."]},
        ) from error
    return row


def withdraw(row: GpuPrice, *, by: User) -> GpuPrice:
    """Take back a price that counts for no day that is over. Raises NotAllowed, WrongState."""
    require_change(by)
    if row.withdrawn_at:
        raise WrongState("This price is withdrawn already.")
    if row.valid_from < periods.today():
        raise WrongState(
            f"This price has counted since {row.valid_from}, and what is over stays as it was. Set a new price from "
            "today on instead."
        )
    with transaction.atomic():
        changed = GpuPrice.objects.filter(pk=row.pk, withdrawn_at=None).update(
            withdrawn_at=now(), withdrawn_by=audit.actor_of(by)
        )
        if not changed:
            raise WrongState("This price is withdrawn already.")
        audit.record(by=by, action="gpu_price.withdraw", **_subject(row), before=fields_of(row))
    row.refresh_from_db()
    return row


def fields_of(row: GpuPrice) -> dict[str, Any]:
    """Return the price's fields for records."""
    return {
        "kind": row.kind,
        "model": row.model,
        "cluster": row.cluster.name if row.cluster else "",
        "valid_from": row.valid_from.isoformat(),
        "amount": str(row.amount),
        "pue": str(row.pue),
        "currency": prices.currency(),
    }


def _subject(row: GpuPrice) -> Mapping[str, Any]:
    return {"target": f"gpu_price:{row.pk}", "target_name": row.model or "energy", "cluster_id": row.cluster_id}


# ── Judging what was given ────────────────────────────────────────────────────────────────────────────────────────────
def _objections(row: GpuPrice) -> dict[str, list[str]]:
    reasons = {
        "kind": "" if row.kind in Kind.values else f"There is no such kind; there are {', '.join(Kind.values)}.",
        "model": _bad_model(row),
        "amount": _bad_amount(row.amount),
        "pue": _bad_pue(row),
        "valid_from": _bad_day(row),
    }
    return {name: [reason] for name, reason in reasons.items() if reason}


def _bad_model(row: GpuPrice) -> str:
    if row.kind == Kind.ENERGY:
        return "Energy has one price for all models: leave it empty." if row.model else ""
    if not row.model:
        return "Name the GPU model as nodes are labeled, such as NVIDIA-H100-80GB-HBM3."
    if node_snapshot.model_name(mig.MIG) in row.model:
        return "Name the whole GPU, without its MIG profile: an instance costs its part."
    return "" if len(row.model) <= 120 and row.model.isprintable() else "At most 120 visible characters."


def _bad_amount(amount: Decimal) -> str:
    if not amount.is_finite() or not LEAST <= amount < MOST:
        return f"From 0 to less than {MOST:,} {prices.currency()}."
    return "" if amount == round(amount, PLACES) else f"At most {PLACES} decimal places."


def _bad_pue(row: GpuPrice) -> str:
    if row.kind == Kind.GPU:
        return "" if row.pue == 1 else "A GPU-hour has no PUE: only energy has."
    if not row.pue.is_finite() or not 1 <= row.pue <= MOST_PUE:
        return f"From 1 to {MOST_PUE}: the energy of the site divided by that of its computers."
    return "" if row.pue == round(row.pue, 3) else "At most 3 decimal places."


def _bad_day(row: GpuPrice) -> str:
    first = periods.today()
    if row.valid_from > first + FURTHEST:
        return "At most ten years from now."
    if row.valid_from >= first:
        return ""
    if row.valid_from < first - FURTHEST:
        return "At most ten years ago."
    return (
        ""
        if _is_unpriced(row, row.valid_from, first)
        else (
            f"Some of the days since then have a price, and what is over stays as it was. The first day can be {first}."
        )
    )


def _is_unpriced(row: GpuPrice, start: date, end: date) -> bool:
    """Return whether no day of [start, end) has a price that this one would replace."""
    book = prices.book()
    days = [start, *book.changes(start, end)]
    if row.kind == Kind.GPU:
        return all(book.gpu(row.model, row.cluster_id, day) is None for day in days)
    return all(book.energy(row.cluster_id, day) is None for day in days)
