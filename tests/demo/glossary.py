"""Pages of the demo as people read them, and REST as programs do: what tests of agreeing numbers ask of both."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from django.test import Client

from accounts.models import User
from common import look

PLURALS = (
    "agents alerts approvals approvers batches boxes changes charts clusters components days deliveries devices digits "
    "drivers events failures files findings gangs GPUs hours images instances jobs keys kinds lines minutes names "
    "namespaces nodes objects people places plans pods points pools profiles queues readings records repositories "
    "requests results revisions roles rollouts rows rules seconds series settings steps tokens values webhooks"
)
ONE_OF_MANY = re.compile(rf"(?<![\w.,:/–-])1 (?:[a-z]+ ){{0,1}}(?:{PLURALS.replace(' ', '|')})\b")
"""`1 nodes`, `1 GPU jobs`; not `0.1 hours`, `of 11 nodes` or `1–1 of 12 plans`."""
OTHERWISE_WRONG = re.compile(r"\bIt of\b|\b(?:the the|a a|of of|to to|is is)\b|\bNone\b(?= of )")
NOT_READ = re.compile(r"(?s)<(script|style|template|svg|pre|code)\b.*?</\1>|<!--.*?-->")
ENDS = re.compile(r"</(?:td|th|p|div|li|h\d|dt|dd|tr|button|a|option|summary|label)>")


class Reader:
    """An administrator with a browser and a program."""

    def __init__(self, email: str = "admin@example.com") -> None:
        self.client = Client()
        self.client.force_login(User.objects.get(email=email))

    def page(self, path: str) -> str:
        answer = self.client.get(path)
        assert answer.status_code == 200, path
        return str(answer.content.decode())

    def rest(self, path: str) -> Any:
        answer = self.client.get(f"/api/v1/{path}")
        assert answer.status_code == 200, path
        return answer.json()

    def count(self, path: str) -> int:
        """Of a list over REST."""
        return int(self.rest(f"{path}{'&' if '?' in path else '?'}limit=1")["count"])


def hooks(page: str, *names: str) -> set[tuple[int, ...]]:
    """The numbers that stand under these data- attributes of one element, wherever the page has them."""
    pattern = r"\s+".join(rf'data-{name}="(\d+)"' for name in names)
    return {tuple(int(number) for number in found.groups()) for found in re.finditer(pattern, page)}


def text(page: str) -> str:
    """What a person reads of it, in one line."""
    spaced = ENDS.sub(" ", NOT_READ.sub(" ", page))
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", "", spaced)))


def states(page: str, heading: str, axis: str) -> dict[str, int]:
    """The counts by state that a card says beside its heading, as words."""
    words = {look.look(axis, name).word.lower(): name for name in look.AXES[axis]}
    card = text(page[page.index(f'id="{heading}"') :].partition("<table")[0])
    found = re.findall(rf"(?<![\d,])([\d,]+) ({'|'.join(map(re.escape, words))})\b", card)
    return {words[word]: int(count.replace(",", "")) for count, word in found}


def listed(page: str, noun: str) -> int:
    """The number under a list: `1–25 of 92 nodes`."""
    found = re.search(rf"of ([\d,]+) {noun}", text(page[page.rindex("sp-card-f") :])) if "sp-card-f" in page else None
    return int(found[1].replace(",", "")) if found else 0


def crawled(reader: Reader, *, alike: int = 2) -> Iterator[tuple[str, str]]:
    """Every page that a link leads to from the first on: (path, page); of addresses that are alike, some.

    422: an action on a filter's nodes, of which there are none any more.
    """
    seen: set[str] = set()
    taken: Counter[str] = Counter()
    todo = ["/"]
    while todo:
        path = todo.pop(0)
        shape = re.sub(r"[0-9a-f]{8}-[0-9a-f-]{27}|[0-9a-f]{40,}|\d+|(?<==)[^&]*", "#", path)
        if path in seen or taken[shape] == alike:
            continue
        seen.add(path)
        taken[shape] += 1
        answer = reader.client.get(path)
        assert answer.status_code in (200, 302, 404, 410, 422), f"{path}: {answer.status_code}"
        if answer.status_code == 302:
            todo.append(answer["Location"])
        if answer.status_code != 200 or "html" not in answer["Content-Type"]:
            continue
        page = answer.content.decode()
        yield path, page
        for found in re.findall(r'href="([^"#]+)', NOT_READ.sub(" ", page)):
            target = html.unescape(found)
            target = path.partition("?")[0] + target if target.startswith("?") else target
            if target.startswith("/") and not target.startswith(("//", "/static/", "/logout", "/api/")):
                todo.append(target)
