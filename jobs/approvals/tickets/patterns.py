"""Forms of references: a small part of regular expressions, matched in time that is linear in the reference.

Literals, `.`, `\\d`, `\\w`, classes such as `[A-Z0-9_]`, the counts `?`, `*`, `+`, `{n}`, `{n,}`, `{n,m}`, and `|`
between whole alternatives. Without groups, nothing that is repeated contains a repetition; and all positions that are
possible are followed at once, so that no pattern makes a match slow, as one can that tries them one after the other.
"""

from __future__ import annotations

import re
import string
from dataclasses import dataclass
from functools import lru_cache

from jobs.models.tickets import REFERENCE_CHARACTERS

PATTERN_CHARACTERS = 100
"""Of the column."""
DIGITS = frozenset(string.digits)
WORD = frozenset(string.ascii_letters + string.digits + "_")
PRINTABLE = frozenset(chr(code) for code in range(0x21, 0x7F))
"""What a reference consists of: visible characters of ASCII."""
SETS = {"d": DIGITS, "w": WORD}
SPECIAL = frozenset("\\.[]{}()?*+|^$")
_COUNT = re.compile(r"\{([0-9]{1,3})(?:(,)([0-9]{1,3})?)?\}")
_REFERENCE = re.compile(rf"[!-~]{{1,{REFERENCE_CHARACTERS}}}")
SYNTAX = r"Letters and digits, \d, \w, ., [A-Z0-9], the counts ?, *, +, {n} and {n,m}, and | between alternatives."


class BadPattern(ValueError):
    """The message is a sentence that says what is wrong, and where."""


@dataclass(frozen=True, slots=True)
class Atom:
    """One character of a set, `least` to `most` times."""

    characters: frozenset[str]
    least: int = 1
    most: int = 1


Alternative = tuple[Atom, ...]


def is_reference(text: str) -> bool:
    return bool(_REFERENCE.fullmatch(text))


def fits(pattern: str, reference: str) -> bool:
    """Return whether the whole reference has the form. Raises BadPattern."""
    if not is_reference(reference):
        return False
    return any(_fits(alternative, reference) for alternative in read(pattern))


def _fits(atoms: Alternative, text: str) -> bool:
    """Follow all positions in the text that each atom can end at."""
    ends = {0}
    for atom in atoms:
        ends = _ends_after(atom, ends, text)
    return len(text) in ends


def _ends_after(atom: Atom, begins: set[int], text: str) -> set[int]:
    ends: set[int] = set()
    run = 0  # characters of the set that begin at this position, read from the end
    for at in range(len(text), -1, -1):
        run = run + 1 if at < len(text) and text[at] in atom.characters else 0
        if at in begins and run >= atom.least:
            ends.update(range(at + atom.least, at + min(run, atom.most) + 1))
    return ends


@lru_cache(maxsize=64)
def read(pattern: str) -> tuple[Alternative, ...]:
    """Return the pattern's alternatives. Raises BadPattern."""
    if not pattern:
        raise BadPattern("It is empty.")
    if len(pattern) > PATTERN_CHARACTERS:
        raise BadPattern(f"It has {len(pattern)} characters; at most {PATTERN_CHARACTERS} are read.")
    if not set(pattern) <= PRINTABLE:
        raise BadPattern("It has a character that no reference can have: use visible ASCII, without blanks.")
    alternatives: list[list[Atom]] = [[]]
    at = 0
    while at < len(pattern):
        if pattern[at] == "|":
            alternatives.append([])
            at += 1
            continue
        characters, at = _characters(pattern, at)
        least, most, at = _count(pattern, at)
        alternatives[-1].append(Atom(characters, least, most))
    if not all(alternatives):
        raise BadPattern("An alternative is empty: write something on both sides of each |.")
    return tuple(tuple(atoms) for atoms in alternatives)


def _characters(pattern: str, at: int) -> tuple[frozenset[str], int]:
    """Read one atom: its set, and where it ends."""
    character = pattern[at]
    if character == "\\":
        return _escaped(pattern, at)
    if character == "[":
        return _class(pattern, at)
    if character == ".":
        return PRINTABLE, at + 1
    if character in "^$":
        raise BadPattern(f"Remove the {character} at position {at + 1}: the whole reference has to match anyway.")
    if character in "()":
        raise BadPattern(f"Groups are not supported (position {at + 1}): write the alternatives in full, as in A|B.")
    if character in "?*+{":
        raise BadPattern(f"The {character} at position {at + 1} repeats nothing. To mean it, write \\{character}.")
    if character in "]}":
        raise BadPattern(f"The {character} at position {at + 1} closes nothing. To mean it, write \\{character}.")
    return frozenset(character), at + 1


def _escaped(pattern: str, at: int) -> tuple[frozenset[str], int]:
    following = pattern[at + 1 : at + 2]
    if following in SETS:
        return SETS[following], at + 2
    if not following or following in WORD:
        raise BadPattern(f"There is no \\{following} (position {at + 1}): use \\d, \\w, or \\ before a sign.")
    return frozenset(following), at + 2


def _class(pattern: str, at: int) -> tuple[frozenset[str], int]:
    """Read `[…]`: characters, ranges, `\\d`, `\\w` and escaped signs."""
    begin, out = at, set[str]()
    at += 1
    if pattern[at : at + 1] == "^":
        raise BadPattern(f"The class at position {begin + 1} is negated: name the characters that are right instead.")
    while at < len(pattern) and pattern[at] != "]":
        low, at = _class_item(pattern, at)
        if pattern[at : at + 1] == "-" and pattern[at + 1 : at + 2] not in ("", "]"):
            high, at = _class_item(pattern, at + 1)
            if len(low) != 1 or len(high) != 1 or min(low) > min(high):
                raise BadPattern(
                    f"A range of the class at position {begin + 1} is not from a character to a later one."
                )
            out.update(chr(code) for code in range(ord(min(low)), ord(min(high)) + 1))
        else:
            out |= low
    if at >= len(pattern):
        raise BadPattern(f"The class that begins at position {begin + 1} is not closed by ].")
    if not out:
        raise BadPattern(f"The class at position {begin + 1} is empty.")
    return frozenset(out), at + 1


def _class_item(pattern: str, at: int) -> tuple[frozenset[str], int]:
    if pattern[at] == "\\":
        return _escaped(pattern, at)
    if pattern[at] == "[":
        raise BadPattern(f"A [ inside of a class, at position {at + 1}. To mean it, write \\[.")
    return frozenset(pattern[at]), at + 1


def _count(pattern: str, at: int) -> tuple[int, int, int]:
    """Read what may follow an atom: least, most, and where it ends."""
    sign = pattern[at : at + 1]
    plain = {"?": (0, 1), "*": (0, REFERENCE_CHARACTERS), "+": (1, REFERENCE_CHARACTERS)}
    if sign in plain:
        least, most = plain[sign]
        at += 1
    elif sign == "{":
        match = _COUNT.match(pattern, at)
        if match is None:
            raise BadPattern(f"The count at position {at + 1} is not {{n}}, {{n,}} or {{n,m}}.")
        least = int(match[1])
        most = int(match[3]) if match[3] else REFERENCE_CHARACTERS if match[2] else least
        if not least <= most <= REFERENCE_CHARACTERS:
            raise BadPattern(f"The count at position {at + 1} is not from less to more, up to {REFERENCE_CHARACTERS}.")
        at = match.end()
    else:
        return 1, 1, at
    if pattern[at : at + 1] and pattern[at] in "?*+{":
        raise BadPattern(f"The {pattern[at]} at position {at + 1} repeats a count: repeat a character once only.")
    return least, most, at
