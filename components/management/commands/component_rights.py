from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from clusters.fleet import FleetError
from clusters.models import Cluster
from common.errors import Refusal
from components import catalogue, preparing
from components.helm_errors import HelmError
from profiles.models import Profile
from profiles.wanted import WantedComponent


class Command(BaseCommand):
    help = "Print the roles that Setpoint's accounts need in a cluster for components, read from their rendered charts."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("cluster", help="by name")
        parser.add_argument("components", nargs="*", metavar="component", help="as the catalog has them; or --profile")
        parser.add_argument("--profile", help="all components of a profile's newest revision, with its values")

    def handle(self, *args: Any, **options: Any) -> None:
        cluster = Cluster.objects.filter(name=options["cluster"]).first()
        if cluster is None:
            raise CommandError(f"there is no cluster {options['cluster']!r}")
        try:
            for wanted in _wanted(options["components"], options["profile"]):
                self.stdout.write(f"---\n{preparing.rights_for(cluster, wanted).text()}")
        except (Refusal, FleetError, HelmError, catalogue.Unknown) as error:
            raise CommandError(str(error)) from error


def _wanted(named: list[str], profile: str | None) -> list[WantedComponent]:
    """Raises CommandError."""
    if not profile:
        if not named:
            raise CommandError("name components, or a profile with --profile")
        return [WantedComponent(catalogue.get(name).name) for name in named]
    row = Profile.objects.filter(name=profile).first()
    revision = row.latest if row else None
    if revision is None:
        raise CommandError(f"there is no published profile {profile!r}")
    there = [one for one in revision.flat.components if not named or one.name in named]
    if missing := set(named) - {one.name for one in there}:
        raise CommandError(f"{profile} wants no {', '.join(sorted(missing))}")
    return there
