"""The reference of metrics and of alert rules, from the objects that the server itself uses. Needs Django set up."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta

from django.apps import apps
from django.db import connection
from prometheus_client import Metric

from config.metrics import States
from notices.alerts import rulebook
from notices.models import Channel
from tools.site import tables


def empty_database() -> None:
    """Create the tables of all models, without migrations, in a database that is thrown away after the build."""
    with connection.schema_editor() as editor:
        for model in apps.get_models():
            editor.create_model(model)


def families() -> list[Metric]:
    """Return each family of /metrics that States collects, for which a database without rows is enough."""
    return sorted(States().collect(), key=lambda family: family.name)


def exposed(family: Metric) -> str:
    """Return the name in the text format: counters end in `_total`."""
    return f"{family.name}_total" if family.type == "counter" else family.name


def metrics_page(of: Iterable[Metric]) -> str:
    rows = [
        (
            tables.code(exposed(family)),
            family.type,
            ", ".join(tables.code(label) for label in getattr(family, "_labelnames", ())),
            tables.plain(family.documentation),
        )
        for family in of
    ]
    return tables.table(("Metric", "Type", "Labels", "What it counts"), rows)


def alerts_page() -> str:
    rows = []
    for rule in rulebook.offered().values():
        holds = rulebook.held(rule, [], None)
        limit = f"{holds.limit} ({rule.threshold.least:g} to {rule.threshold.most:g})" if rule.threshold else ""
        closes = _lasting(holds.closes_after)
        rows.append(
            (
                tables.code(rule.name),
                tables.plain(rule.title),
                holds.severity.value,
                tables.plain(holds.about),
                tables.plain(limit),
                _lasting(holds.opens_after),
                closes,
            )
        )
    head = ("Rule", "Title", "Severity", "Opens when", "Limit", "Lasting", "Closes after")
    return tables.table(head, rows)


def notices_page() -> str:
    return tables.table(
        ("Notice", "What it is sent for"), [(tables.code(w), tables.plain(w.label)) for w in Channel.What]
    )


def _lasting(time: timedelta) -> str:
    minutes = time.total_seconds() / 60
    return f"{minutes:g} min" if minutes else "at once"
