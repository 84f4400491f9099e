from __future__ import annotations

import os
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from clusters.fleet import FleetError, NotFound
from clusters.net.credentials import BadCredentials
from config.demo import hands
from config.demo.environment import MARK
from config.demo.history import BARE


class Command(BaseCommand):
    help = "Breaks something in a cluster of the running demo, as anyone with kubectl could."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("what", choices=hands.ACTS, help="; ".join(f"{n}: {a.says}" for n, a in hands.ACTS.items()))
        parser.add_argument("--cluster", default=BARE, help="default: %(default)s")

    def handle(self, *args: Any, **options: Any) -> None:
        if os.environ.get(MARK) != str(settings.VAR):
            raise CommandError("Only a demo is broken by hand: python manage.py demo_break.")
        act, file = hands.ACTS[options["what"]], settings.VAR.parent / hands.FILE
        try:
            hands.do(act, file, options["cluster"])
        except FileNotFoundError:
            raise CommandError("No demo runs here: make demo") from None
        except NotFound:
            raise CommandError(f"Nothing to break: {act.needs} is not there.") from None
        except (BadCredentials, FleetError) as error:
            raise CommandError(str(error)) from error
        self.stdout.write(f"{act.says}\nThe same with kubectl: kubectl --kubeconfig {file} {act.kubectl}")
