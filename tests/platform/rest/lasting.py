"""A world and its doors, made once for a file whose tests change no more than their own transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

import pytest
from django.db import transaction
from django.utils import timezone

from clusters.connection import registry
from components.catalog import site
from jobs import tasks
from profiles.catalog import known_settings
from tests.conftest import Clock
from tests.jobs.conftest import OBSERVED, World
from tests.platform.rest.doors import Doors

SomeDoors = TypeVar("SomeDoors", bound=Doors)


@contextmanager
def lasting(made: Callable[[World], SomeDoors], blocker: Any, *, nodes: int) -> Iterator[SomeDoors]:
    """Yield the doors of a world of so many nodes, in a transaction that is rolled back at the end.

    Each test's own transaction is a savepoint in it. The clock is fixed meanwhile, and no task is sent.
    """
    with pytest.MonkeyPatch.context() as patch, blocker.unblock(), transaction.atomic(), site.switched_on():
        clock = Clock(datetime(2026, 11, 21, 12, tzinfo=UTC))
        patch.setattr(timezone, "now", clock)
        patch.setattr(known_settings, "observable_keys", lambda: OBSERVED)
        patch.setattr(tasks, "wake", lambda pk: None)
        world = World(clock, nodes=nodes)
        try:
            yield made(world)
        finally:
            registry.uninstall(world.cluster.pk)
            transaction.set_rollback(True)
