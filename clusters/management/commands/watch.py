from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from audit.sealing import check_at_start
from clusters import watch
from common import stopping


class Command(BaseCommand):
    help = (
        "Watch clusters and keep their rows true. Several processes share the clusters; leases in the database decide."
    )

    def handle(self, *args: Any, **options: Any) -> None:
        check_at_start("watch")
        watch.run(stopping.at_signals(), watch.new_owner())
