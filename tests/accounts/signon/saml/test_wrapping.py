"""Signature wrapping: a true signature is moved, and what it does not cover is put where a reader looks.

The first eight are those of Somorovsky and others, "On Breaking SAML" (USENIX Security 2012).
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from django.test import Client
from lxml import etree

from accounts.models import User
from accounts.signon.saml import responses
from tests.accounts.signon.saml import idp
from tests.accounts.signon.saml.conftest import LogIn
from tests.accounts.signon.saml.idp import NS

pytestmark = pytest.mark.django_db


def tag(prefix: str, name: str) -> str:
    return f"{{{NS[prefix]}}}{name}"


def evil(assertion: Any, identifier: str | None = "_evil") -> Any:
    """Return an unsigned copy that names another person, in the group of administrators."""
    made = copy.deepcopy(assertion)
    made.remove(made.find("ds:Signature", NS))
    if identifier:
        made.set("ID", identifier)
    made.find("saml:Subject/saml:NameID", NS).text = "evil-1"
    made.find(".//saml:Attribute[@Name='email']/saml:AttributeValue", NS).text = "evil@example.com"
    made.find(".//saml:Attribute[@Name='groups']/saml:AttributeValue", NS).text = "admins"
    return made


def parts(root: Any) -> tuple[Any, Any]:
    assertion = root.find("saml:Assertion", NS)
    return assertion, assertion.find("ds:Signature", NS)


def within(parent: Any, name: str, *children: Any) -> None:
    box = etree.SubElement(parent, name)
    box.extend(children)


def whole_response(root: Any) -> Any:
    """Return a copy of the signed response, and make the root another, evil one with its signature."""
    original = copy.deepcopy(root)
    assertion, _ = parts(root)
    root.replace(assertion, evil(assertion))
    root.set("ID", "_evil_response")
    original.remove(original.find("ds:Signature", NS))
    return original


def xsw1(root: Any) -> None:
    original = whole_response(root)
    within(root.find("ds:Signature", NS), tag("ds", "Object"), original)


def xsw2(root: Any) -> None:
    original = whole_response(root)
    root.find("ds:Signature", NS).addprevious(original)


def xsw3(root: Any) -> None:
    assertion, _ = parts(root)
    assertion.addprevious(evil(assertion))


def xsw4(root: Any) -> None:
    assertion, _ = parts(root)
    around = evil(assertion)
    root.replace(assertion, around)
    around.append(assertion)


def xsw5(root: Any) -> None:
    assertion, signature = parts(root)
    other = evil(assertion)
    root.replace(assertion, other)
    other.insert(1, signature)
    root.append(assertion)


def xsw6(root: Any) -> None:
    assertion, signature = parts(root)
    other = evil(assertion)
    root.replace(assertion, other)
    other.insert(1, signature)
    signature.append(assertion)


def xsw7(root: Any) -> None:
    assertion, _ = parts(root)
    box = etree.Element(tag("samlp", "Extensions"))
    box.append(evil(assertion, None))
    root.insert(1, box)


def xsw8(root: Any) -> None:
    assertion, signature = parts(root)
    other = evil(assertion, None)
    root.replace(assertion, other)
    other.insert(1, signature)
    within(signature, tag("ds", "Object"), assertion)


def original_in_extensions(root: Any) -> None:
    assertion, _ = parts(root)
    root.replace(assertion, evil(assertion))
    within(root, tag("samlp", "Extensions"), assertion)


def original_in_status(root: Any) -> None:
    assertion, _ = parts(root)
    root.replace(assertion, evil(assertion))
    within(root.find("samlp:Status", NS), tag("samlp", "StatusDetail"), assertion)


def original_in_an_attribute(root: Any) -> None:
    assertion, signature = parts(root)
    other = evil(assertion)
    root.replace(assertion, other)
    other.insert(1, copy.deepcopy(signature))
    other.find(".//saml:AttributeValue", NS).append(assertion)


def the_same_id_with_the_signature(root: Any) -> None:
    assertion, signature = parts(root)
    other = evil(assertion, None)
    other.insert(1, copy.deepcopy(signature))
    assertion.addprevious(other)


def an_id_of_another_name(root: Any) -> None:
    """`Id` is found before `ID` by some verifiers."""
    assertion, signature = parts(root)
    other = evil(assertion)
    root.replace(assertion, other)
    other.insert(1, signature)
    other.set("ID", assertion.get("ID"))
    del assertion.attrib["ID"]
    assertion.set("Id", other.get("ID"))
    within(root, tag("samlp", "Extensions"), assertion)


def signed_response_around_another_assertion(root: Any) -> None:
    assertion, signature = parts(root)
    other = evil(assertion, None)
    other.insert(1, signature)
    root.replace(assertion, other)


VARIANTS: dict[str, tuple[Callable[[Any], None], dict[str, Any]]] = {
    "XSW1": (xsw1, {"signs_response": True}),
    "XSW2": (xsw2, {"signs_response": True}),
    **{f.__name__.upper(): (f, {}) for f in (xsw3, xsw4, xsw5, xsw6, xsw7, xsw8)},
    **{
        f.__name__.replace("_", " "): (f, {})
        for f in (
            original_in_extensions, original_in_status, original_in_an_attribute, the_same_id_with_the_signature,
            an_id_of_another_name,
        )
    },
    "signed response around another assertion": (signed_response_around_another_assertion, {"signs_response": True}),
}  # fmt: skip


@pytest.mark.parametrize("is_form_checked", [True, False], ids=["", "without the check of its form"])
@pytest.mark.parametrize(("wrap", "over"), VARIANTS.values(), ids=VARIANTS.keys())
@pytest.mark.every_case
def test_a_moved_signature_makes_nobody_another_person(
    log_in: LogIn,
    monkeypatch: pytest.MonkeyPatch,
    wrap: Callable[[Any], None],
    over: dict[str, Any],
    is_form_checked: bool,
) -> None:
    """The form and what is read each hold alone: without the first, the person who was signed for is the most."""
    if not is_form_checked:
        monkeypatch.setattr(responses, "check_form", lambda root, provider: None)
    client = Client()
    answer = log_in(client, after=wrap, **over)
    assert set(User.objects.values_list("email", flat=True)) <= {"ada@example.com"}
    if is_form_checked:
        assert answer.status_code == 403
        assert not User.objects.exists()
        assert client.get("/api/v1/me").status_code == 401


def test_each_variant_differs_from_what_was_signed() -> None:
    """Else the table would test nothing."""
    for name, (wrap, over) in VARIANTS.items():
        root = idp.response(idp.Answer(after=wrap, **over), "_r")
        assert b"evil@example.com" in etree.tostring(root), name
