"""Words of a kernel command line as settings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from profiles.catalog.host_paths import PAGE_SIZES
from profiles.imports.draft import DraftBuilder

PRESENT = "present"
"""Value of an argument that has none, as a profile writes it."""
_SIZES = {spelling: key for key, (_, spelling) in PAGE_SIZES.items()}

Word = tuple[str, int]
"""(argument, its line)"""


def take(words: Sequence[Word], builder: DraftBuilder, *, pages_are_settings: bool) -> None:
    """Take each word as `cmdline.<name>`, and pairs of a page size and its count as what they mean.

    A profile holds one value of an argument, and the kernel adds up some that are given twice, such as `pci`:
    those are named. Several page sizes, or any with `pages_are_settings`, are huge pages of the node: `hugepages-2Mi`.
    """
    rest = list(words)
    pairs = [
        at
        for at in range(len(rest) - 1)
        if rest[at][0].startswith("hugepagesz=") and rest[at + 1][0].startswith("hugepages=")
    ]
    if pages_are_settings or len(pairs) > 1:
        for at in reversed(pairs):
            (size, _), (count, line) = rest[at], rest[at + 1]
            _pages(size.partition("=")[2], count.partition("=")[2], line, builder)
            del rest[at : at + 2]
    rest = _without_uncounted(rest, builder)
    counts = Counter(word.partition("=")[0] for word, _ in rest)
    for word, line in rest:
        name, equals, value = word.partition("=")
        if counts[name] > 1:
            builder.refuse(line, word, f"{name} is given {counts[name]} times, and a profile holds one value of it")
        elif equals and not value:
            builder.refuse(line, word, "has no value")
        else:
            builder.assign(f"cmdline.{name}", value if equals else PRESENT, line=line, text=word)


def _pages(size: str, count: str, line: int, builder: DraftBuilder) -> None:
    text = f"hugepagesz={size} hugepages={count}"
    if key := _SIZES.get(size):
        builder.assign(key, count, line=line, text=text)
    else:
        builder.refuse(line, text, f"a profile has pages of {' and '.join(_SIZES)}")


def _without_uncounted(words: list[Word], builder: DraftBuilder) -> list[Word]:
    """Name a count before its size: to the kernel it is about the default size, to a profile about `hugepagesz`."""
    names = [word.partition("=")[0] for word, _ in words]
    if "hugepagesz" not in names or "hugepages" not in names or names.index("hugepagesz") < names.index("hugepages"):
        return words
    word, line = words.pop(names.index("hugepages"))
    builder.refuse(line, word, "counts pages of the default size, for it is before hugepagesz")
    return words
