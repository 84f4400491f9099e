from __future__ import annotations

import signal
import threading
from typing import Any

from django.core.management.base import BaseCommand

from clusters import watch


class Command(BaseCommand):
    help = (
        "Watch clusters and keep their rows true. Several processes share the clusters; leases in the database decide."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        stop = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: stop.set())
        watch.run(stop, watch.new_owner())
