from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from clusters.connection import helm_credentials
from clusters.fleet import FleetError
from clusters.models import Cluster
from common.errors import Refusal
from components.access import administrator
from components.catalog import catalog
from components.helm.errors import HelmError
from components.release import preparing
from profiles.content.cluster import WantedComponent
from profiles.models import Profile


class Command(BaseCommand):
    help = "Print the roles that Setpoint's accounts need in a cluster for components, read from their rendered charts."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("cluster", help="by name")
        parser.add_argument("components", nargs="*", metavar="component", help="as the catalog has them; or --profile")
        parser.add_argument("--profile", help="all components of a profile's newest revision, with its values")
        parser.add_argument("--dangerous", action="store_true", help="with the rights that the roles leave out")
        parser.add_argument(
            "--cluster-admin", action="store_true", help="instead of roles: helm as a cluster administrator for a while"
        )
        parser.add_argument("--for", dest="span", help="how long, as 30m or 2h; with --cluster-admin only")

    def handle(self, *args: Any, **options: Any) -> None:
        cluster = Cluster.objects.filter(name=options["cluster"]).first()
        if cluster is None:
            raise CommandError(f"there is no cluster {options['cluster']!r}")
        if options["cluster_admin"]:
            if options["components"] or options["profile"] or options["dangerous"]:
                raise CommandError("--cluster-admin is of no component: name none")
            self.stdout.write(administrator.text(cluster, _span(options["span"])))
            return
        if options["span"]:
            raise CommandError("--for is of --cluster-admin: roles end when they are removed")
        try:
            for component in _wanted(options["components"], options["profile"]):
                self.stdout.write(
                    f"---\n{preparing.rights_for(cluster, component).text(is_whole=options['dangerous'])}"
                )
        except (Refusal, FleetError, HelmError, catalog.Unknown) as error:
            raise CommandError(str(error)) from error


def _span(text: str | None) -> timedelta:
    """Raises CommandError."""
    match = re.fullmatch(r"(\d{1,4})(m|h)", text or "")
    if not match:
        raise CommandError("say for how long: --for 30m, --for 2h")
    span = timedelta(minutes=int(match[1]) * (60 if match[2] == "h" else 1))
    if not administrator.SHORTEST <= span <= helm_credentials.LONGEST:
        raise CommandError("--for: from 10m, the shortest that an API server gives a token for, to 24h")
    return span


def _wanted(named: list[str], profile: str | None) -> list[WantedComponent]:
    """Raises CommandError."""
    if not profile:
        if not named:
            raise CommandError("name components, or a profile with --profile")
        return [WantedComponent(catalog.get(name).name) for name in named]
    row = Profile.objects.filter(name=profile).first()
    revision = row.latest if row else None
    if revision is None:
        raise CommandError(f"there is no published profile {profile!r}")
    there = [component for component in revision.flat.components if not named or component.name in named]
    if missing := set(named) - {component.name for component in there}:
        raise CommandError(f"{profile} wants no {', '.join(sorted(missing))}")
    return there
