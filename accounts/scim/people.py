"""One person as a directory has them, and how each attribute of a request changes it."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import validate_email

from accounts.models import ScimUser
from accounts.scim import documents
from accounts.scim.documents import IGNORED, READ_ONLY, REFUSED, USER, text, truth
from accounts.scim.filters import bare
from accounts.scim.refusals import ScimRefused, invalid

LONGEST_NAME = 150
LONGEST_KEY = 400
"""Of what names are compared by: some characters become many letters, and an index holds so much."""
_EMAILS = re.compile(r'emails(?:\[\s*(type|primary)\s+eq\s+"?([a-z]+)"?\s*\])?(?:\.(value|type|primary|display))?')


@dataclass(slots=True)
class Person:
    user_name: str = ""
    external_id: str = ""
    display_name: str = ""
    given_name: str = ""
    family_name: str = ""
    email: str = ""
    is_active: bool = True

    @classmethod
    def of(cls, row: ScimUser) -> Person:
        user = row.user
        return cls(
            user_name=row.user_name,
            external_id=row.external_id,
            display_name=row.display_name,
            given_name=user.first_name,
            family_name=user.last_name,
            email=user.email,
            is_active=row.is_active,
        )

    @property
    def user_name_key(self) -> str:
        return key_of(self.user_name)


def key_of(name: str) -> str:
    """Return the form in which two names are one: directories differ in case, and so do attackers."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", name).casefold())


def read(document: Mapping[str, Any], present: Person | None = None) -> Person:
    """Return the person of a POST, or of a PUT over `present`. What a PUT leaves out is emptied, but for `active`,
    `externalId` and the address: a directory that never sends them must not end or lose a person."""
    fields = documents.members_of(document, USER)
    person = Person(
        external_id=present.external_id if present else "",
        is_active=present.is_active if present else True,
        email=present.email if present else "",
    )
    for name, value in fields.items():
        _put(person, name, value, is_path=False)
    return _finished(person, present, is_email_given=bool(fields.get("emails")))


def patched(present: Person, document: Mapping[str, Any]) -> Person:
    """Return the person after a PATCH's operations. Raises ScimRefused; then nothing of it counts."""
    person, is_email_given = replace(present), False
    for verb, path, value in documents.operations(document):
        pairs = {path: None if verb == "remove" else value} if path else value
        for name, inner in pairs.items():
            if verb == "remove" and bare(name) == "active":
                raise invalid("active", "is never removed: replace it.")
            _put(person, bare(name), inner, is_path=bool(path))
            is_email_given = is_email_given or bare(name).startswith("emails")
    return _finished(person, present, is_email_given=is_email_given)


def _finished(person: Person, present: Person | None, *, is_email_given: bool) -> Person:
    """Check it as a whole. The address is the e-mail, or else a userName that is one; then it follows that."""
    if not person.user_name:
        raise invalid("userName", "is required.")
    if len(person.user_name_key) > LONGEST_KEY:
        raise invalid("userName", f"at most {LONGEST_KEY} characters, each as its plain letters.")
    is_user_name = present is None or present.email == present.user_name.lower()
    if not person.email or (not is_email_given and is_user_name and is_address(person.user_name)):
        person.email = person.user_name.lower()
    if not is_address(person.email):
        raise invalid("emails", "an e-mail address names the account: send one, or a userName that is one.")
    return person


def is_address(value: str) -> bool:
    try:
        validate_email(value)
    except ValidationError:
        return False
    return value.isascii() and len(value) <= LONGEST_NAME


def _put(person: Person, name: str, value: Any, *, is_path: bool) -> None:
    if name == "username":
        person.user_name = text("userName", value, is_required=True)
    elif name == "externalid":
        person.external_id = text("externalId", value, most=255)
    elif name == "displayname":
        person.display_name = text("displayName", value)
    elif name == "active":
        person.is_active = truth("active", value)
    elif name == "name":
        _put_name(person, value)
    elif name.startswith("name."):
        _put_name(person, {name.removeprefix("name."): value})
    elif match := _EMAILS.fullmatch(name):
        _put_email(person, match, value)
    else:
        _judge(name, value, is_path)


def _put_name(person: Person, value: Any) -> None:
    if value is None:
        value = {"givenname": None, "familyname": None}
    if not isinstance(value, dict):
        raise invalid("name", "must be an object.")
    for part, inner in documents.lowered(value).items():
        if part == "givenname":
            person.given_name = text("name.givenName", inner, most=LONGEST_NAME)
        elif part == "familyname":
            person.family_name = text("name.familyName", inner, most=LONGEST_NAME)
        elif part not in ("formatted", "middlename", "honorificprefix", "honorificsuffix"):
            raise ScimRefused(400, f"name.{part[:60]}: is no part of a name.", "invalidPath")


def _put_email(person: Person, match: re.Match[str], value: Any) -> None:
    """Keep one address: the primary one, else that of work, else the first."""
    by, which, part = match.groups()
    if part not in (None, "value") or (by == "type" and which != "work") or (by == "primary" and which != "true"):
        return  # of an address that is not kept
    if isinstance(value, str):
        value = [{"value": value}]
    rows = [value] if isinstance(value, dict) else value
    if rows is None or rows == []:
        person.email = ""
        return
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise invalid("emails", "must be a list of objects with value.")
    read_rows = [documents.lowered(row) for row in rows]

    def rank(row: dict[str, Any]) -> int:
        return 2 * (str(row.get("primary")).lower() != "true") + (str(row.get("type")).lower() != "work")

    person.email = text("emails.value", min(read_rows, key=rank).get("value")).lower()
    if person.email and not is_address(person.email):
        raise invalid("emails.value", f"{person.email[:60]!r} is no address.")


def _judge(name: str, value: Any, is_path: bool) -> None:
    """Ignore an attribute that is not kept, or refuse it."""
    base = re.split(r"[.\[]", name, maxsplit=1)[0]
    if name.startswith("urn:"):
        return  # of an extension
    if base in READ_ONLY:
        if is_path:
            raise ScimRefused(400, f"{base}: is read-only.", "mutability")
        return
    if base in REFUSED:
        if value in (None, [], ""):
            return
        raise invalid(base, "is not accepted: roles come from groups, by the operator's mapping.")
    if base not in IGNORED:
        raise ScimRefused(
            400, f"{base[:60]}: is no attribute of a User.", "invalidPath" if is_path else "invalidSyntax"
        )
