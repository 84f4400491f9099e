"""Pages of the demo as people read them, and REST as programs do: what tests of agreeing numbers ask of both."""

from __future__ import annotations

import html
import re
from typing import Any

from django.test import Client

from accounts.models import User
from common import look

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
        """Return the count of a list over REST."""
        return int(self.rest(f"{path}{'&' if '?' in path else '?'}limit=1")["count"])


def hooks(page: str, *names: str) -> set[tuple[int, ...]]:
    """The numbers that stand under these data- attributes of one element, wherever the page has them."""
    pattern = r"\s+".join(rf'data-{name}="(\d+)"' for name in names)
    return {tuple(int(number) for number in match.groups()) for match in re.finditer(pattern, page)}


def text(page: str) -> str:
    """Return the page's visible text, in one line."""
    spaced = ENDS.sub(" ", NOT_READ.sub(" ", page))
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", "", spaced)))


def states(page: str, heading: str, axis: str) -> dict[str, int]:
    """The counts by state that a card says beside its heading, as words."""
    words = {look.appearance(axis, name).word.lower(): name for name in look.AXES[axis]}
    card = text(page[page.index(f'id="{heading}"') :].partition("<table")[0])
    counted = re.findall(rf"(?<![\d,])([\d,]+) ({'|'.join(map(re.escape, words))})\b", card)
    return {words[word]: int(count.replace(",", "")) for count, word in counted}


def listed(page: str, noun: str) -> int:
    """The number under a list: `1–25 of 92 nodes`."""
    match = re.search(rf"of ([\d,]+) {noun}", text(page[page.rindex("sp-card-f") :])) if "sp-card-f" in page else None
    return int(match[1].replace(",", "")) if match else 0
