"""A draft as it grows from another tool's file: settings that can be taken, and each line that cannot, with its reason.

The catalog judges every setting as it judges a profile's. A file's later line wins over an earlier one, as it does in
the kernel; the earlier is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from common.errors import Invalid
from contract import key_lists, keys
from contract.isolation import Isolation
from contract.keys import KeyKind
from contract.nodetuning import Operator
from profiles.catalog import known_settings
from profiles.document import layering, setting_check
from profiles.document.document import DocumentSetting, InvalidProfile, ProfileDocument, render
from profiles.document.setting_check import SettingRefused

MAX_NOT_TAKEN = 1000
"""A text with more lines that cannot be taken is no file of this format, and no page would show them."""
MAX_EXCERPT = 120
MAX_REASON = 400
MAX_DESCRIPTION = 300
_NUMBERS = re.compile(r"-?[0-9]+(?:[ \t]+-?[0-9]+)*")
_OTHER_BASE = re.compile(r"-?0[0-9A-Za-z]+")


@dataclass(frozen=True, slots=True)
class LineNotTaken:
    line: int
    """Counted from 1."""
    text: str
    reason: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.text}: {self.reason}"

    def to_json(self) -> dict[str, object]:
        return {"line": self.line, "text": self.text, "reason": self.reason}


@dataclass(frozen=True, slots=True)
class ImportedDraft:
    document: ProfileDocument
    not_taken: tuple[LineNotTaken, ...]
    """In the order of their lines."""

    @property
    def source(self) -> str:
        """Return the draft as a profile's YAML."""
        return render(self.document)


@dataclass(frozen=True, slots=True)
class _Assignment:
    key: str
    operator: str
    value: str
    line: int
    text: str


class DraftBuilder:
    """Collects a file's assignments; `finish` judges them."""

    def __init__(self) -> None:
        self.description = ""
        self._assignments: list[_Assignment] = []
        self._not_taken: list[LineNotTaken] = []

    def describe(self, text: str) -> None:
        """Take the file's own sentence about itself."""
        self.description = printable(" ".join(text[: 2 * MAX_DESCRIPTION].split()))[:MAX_DESCRIPTION].strip()

    def assign(self, key: str, value: str, *, line: int, text: str, operator: str = Operator.EQUALS) -> None:
        """Take a setting of any key and value; `finish` refuses those that no profile may have."""
        try:
            name = setting_check.key(key)
        except SettingRefused as refusal:
            self.refuse(line, text, str(refusal))
            return
        self._assignments.append(_Assignment(name, operator, value.strip(), line, text))

    def refuse(self, line: int, text: str, reason: str) -> None:
        """Name a line that cannot be taken, or a part of it. Raises Invalid when there are too many."""
        self._not_taken.append(LineNotTaken(line, excerpt(text), excerpt(reason, MAX_REASON)))
        if len(self._not_taken) > MAX_NOT_TAKEN:
            message = f"More than {MAX_NOT_TAKEN:,} lines could not be taken; is it really of this format?"
            raise Invalid(message, fields={"source": [message]})

    def finish(self) -> ImportedDraft:
        """Judge all of it together. Raises Invalid."""
        taken: dict[str, tuple[_Assignment, DocumentSetting]] = {}
        for assignment in self._last_of_each():
            try:
                checked = _ask(assignment)
            except SettingRefused as refusal:
                self.refuse(assignment.line, assignment.text, str(refusal))
                continue
            taken[assignment.key] = (
                assignment,
                DocumentSetting(assignment.key, checked.operator, checked.value),
            )
        document = self._without_conflicts(taken)
        return ImportedDraft(document, tuple(sorted(self._not_taken, key=lambda entry: entry.line)))

    def _last_of_each(self) -> Iterable[_Assignment]:
        """Return what a later line does not undo: of the same key, or of one that the kernel resets with it."""
        last: dict[str, _Assignment] = {}
        for assignment in self._assignments:
            for other in (assignment.key, *_reset_by(assignment.key)):
                if earlier := last.pop(other, None):
                    how = "sets it again" if other == assignment.key else f"sets {assignment.key}, which replaces it"
                    self.refuse(earlier.line, earlier.text, f"line {assignment.line} {how}")
            last[assignment.key] = assignment
        return list(last.values())

    def _without_conflicts(self, taken: dict[str, tuple[_Assignment, DocumentSetting]]) -> ProfileDocument:
        document = ProfileDocument(description=self.description)
        while taken:
            settings = tuple(taken[key][1] for key in sorted(taken))
            document = replace(document, settings=settings)
            try:
                layering.flatten(document, None, origin="the file")
            except InvalidProfile as refusal:
                conflicting = {note.path.removeprefix("settings."): note.message for note in refusal.problems}
                if not conflicting.keys() & taken.keys():
                    raise
                for key in conflicting.keys() & taken.keys():
                    assignment, _ = taken.pop(key)
                    self.refuse(assignment.line, assignment.text, conflicting[key])
            else:
                return document
        return replace(document, settings=())


def _reset_by(key: str) -> frozenset[str]:
    """Return the keys whose values are lost when this one is written after them."""
    return frozenset().union(*(group - {key} for group in (*key_lists.COUPLED, *key_lists.ONE_VALUE) if key in group))


def _ask(assignment: _Assignment) -> setting_check.CheckedSetting:
    """Judge one setting as other tools and the kernel read it, which know no units. Raises SettingRefused."""
    key, value = assignment.key, assignment.value
    if value.startswith((">", "<", "=")):
        raise SettingRefused("its value begins with an operator", code="bad-operator", part="operator")
    info = known_settings.get(key)
    if info and info.is_number and value and not _NUMBERS.fullmatch(value):
        raise SettingRefused(f"{value[:40]!r} is not a plain number", code="bad-value", part="value")
    if keys.kind_of(key) is KeyKind.SYSCTL and any(_OTHER_BASE.fullmatch(word) for word in value.split()):
        raise SettingRefused(
            "the kernel reads a number that begins with 0 as octal or hexadecimal; write it in decimal",
            code="bad-value",
            part="value",
        )
    return setting_check.ask(key, value, assignment.operator)


def canonical_isolation(listed: str, *flags: str) -> str:
    """Return another tool's list of isolated CPUs as a profile writes it; as it is when it is none."""
    try:
        return Isolation.of(",".join([*flags, listed.replace(" ", "")])).to_text()
    except ValueError:
        return listed


def printable(text: str) -> str:
    """Return the text with what cannot be shown escaped."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def excerpt(text: str, most: int = MAX_EXCERPT) -> str:
    """Return the beginning of a text, printable."""
    shown = printable(text.strip()[: most + 1])
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def invalid(message: str) -> Invalid:
    """Return the refusal of a whole text."""
    return Invalid(message, fields={"source": [message]})
