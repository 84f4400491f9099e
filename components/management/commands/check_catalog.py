from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from components.catalog import catalog
from components.charts import catalog_check


class Command(BaseCommand):
    help = (
        "Fetch each chart of the catalog from its repository (or mirror) and check every key of every preset against "
        "it; tell of newer versions. For a machine with internet access."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("components", nargs="*", metavar="component", help="only these; all of them without")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            components = [catalog.get(name) for name in options["components"]] or list(catalog.all())
        except catalog.Unknown as error:
            raise CommandError(str(error)) from error
        wrong = 0
        for component in components:
            for finding in catalog_check.check(component):
                wrong += finding.is_wrong
                out = self.stderr if finding.is_wrong else self.stdout
                out.write(str(finding))
        if wrong:
            raise CommandError(f"{wrong} of the catalog's facts {'does' if wrong == 1 else 'do'} not hold")
