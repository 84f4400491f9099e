"""Observations handed to the store, at fixed times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from clusters.inventory import store

AT = datetime(2026, 11, 21, 12, tzinfo=UTC)
LATER = AT + timedelta(minutes=1)


def see(cluster, *raws, complete=False, at=AT, deleted=()):
    return store.observe_nodes(cluster, list(raws), complete=complete, at=at, deleted=deleted)


def tune(cluster, *raws, complete=False, at=AT, deleted=()):
    return store.observe_tunings(cluster, list(raws), complete=complete, at=at, deleted=deleted)
