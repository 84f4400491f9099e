"""People of one cluster: no page and no answer within their reach names another cluster, or a node called after it."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator

import pytest
from django.test import Client

from accounts.models import RoleBinding, User
from clusters.models import Cluster
from tests.platform.rest.doors import addresses

MOST_PAGES = 400
"""Of each reader; a list's further pages and orders are pages of their own."""
LINK = re.compile(r'(?:href|hx-get|src)="(/[^"#]*)')
NOT_FOLLOWED = re.compile(
    r"^/(static|logout|account|api/v1/(docs|openapi))|[?&](sort|order|by|hours|range|after|before|from|to)="
)
TYPED = re.compile("cirrus-dev gained 40 % in all-reduce|gangs run in atlas-training")
"""What people wrote into a plan's message and a profile, which others read."""


class NarrowReader:
    """A viewer of one cluster, who follows every link that a page gives."""

    def __init__(self, cluster: Cluster) -> None:
        user = User.objects.create(username=f"of-{cluster.name}", email=f"of-{cluster.pk}@example.com")
        RoleBinding.objects.create(user=user, role="viewer", scope=f"cluster:{cluster.pk}")
        self.client = Client()
        self.client.force_login(user)
        self.others = [name for name in Cluster.objects.values_list("name", flat=True) if name != cluster.name]

    def answers(self) -> Iterator[tuple[str, int, str]]:
        """Yield (path, status, body) of each page and each answer of REST within reach, breadth first."""
        paths = deque(["/", *collections()])
        known = set(paths)
        for _ in range(MOST_PAGES):
            if not paths:
                return
            path = paths.popleft()
            answer = self.client.get(path)
            if answer.streaming:
                continue
            body = answer.content.decode(errors="replace")
            yield path, answer.status_code, body
            links = re.findall(r'"id": ?"([0-9a-f-]{36})"', body) if path.startswith("/api/") else []
            further = [f"{path.partition('?')[0]}/{pk}" for pk in links[:3]] if path.count("/") < 6 else []
            for link in [*further, *(match.replace("&amp;", "&") for match in LINK.findall(body))]:
                if link not in known and not NOT_FOLLOWED.search(link):
                    known.add(link)
                    paths.append(link)


def collections() -> list[str]:
    """Return every address of REST without a parameter, but that of its description, whose examples name clusters."""
    routes = {route for route, _ in addresses() if route.startswith("api/") and "<" not in route}
    return sorted(f"/{route}" for route in routes if not NOT_FOLLOWED.match(f"/{route}"))


@pytest.mark.usefixtures("world")
class TestNarrowReaders:
    @pytest.mark.parametrize("name", ["borealis-inference", "fjord-bare"])
    def test_nothing_within_reach_of_a_viewer_of_one_cluster_names_another(self, name: str) -> None:
        reader = NarrowReader(Cluster.objects.get(name=name))
        leaks: dict[str, set[str]] = {}
        read = 0
        for path, status, body in reader.answers():
            assert status < 500, path
            read += status == 200
            shown = TYPED.sub("", body)
            if named := {other for other in reader.others if other in shown}:
                leaks[path] = named

        assert read > MOST_PAGES / 2, "or it reached nothing"
        assert not leaks
