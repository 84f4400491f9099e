"""Any text that is posted as an answer is refused in words, and is never an error of ours."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from accounts.signon.refusals import SignOnRefused
from accounts.signon.saml import documents, requests, responses, signatures
from accounts.signon.saml.names import saml
from accounts.signon.saml.times import instant
from common.clock import now
from tests.accounts.signon.saml import idp

PROVIDER = idp.provider()
GOOD = etree.tostring(idp.response(idp.Answer(), "_r"))


def judged(xml: bytes) -> None:
    begun = requests.Begun("_r", "", now(), is_step_up=False)
    root = documents.read(base64.b64encode(xml).decode(), PROVIDER)
    responses._check_response(root, PROVIDER, begun)
    documents.check_form(root, PROVIDER)
    assertion = signatures.signed(root, saml("Assertion"), PROVIDER)
    responses._check_assertion(assertion, PROVIDER, begun)
    responses._claims(assertion, PROVIDER, begun)


@st.composite
def broken(draw: st.DrawFn) -> bytes:
    """Draw an answer that was right, with pieces cut out, doubled, or put in place of others."""
    xml = GOOD
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(xml)))
        end = min(len(xml), begin + draw(st.integers(0, 60)))
        piece = draw(
            st.sampled_from([b"", xml[begin:end] * 2, b"<", b"&", b'"', b"<saml:Assertion/>", b"\x00", b"ID="])
        )
        xml = xml[:begin] + piece + xml[end:]
    return xml


@given(st.one_of(st.binary(max_size=400), broken()))
def test_junk_is_refused_and_breaks_nothing(settings_of_saml: Any, xml: bytes) -> None:
    if xml == GOOD:
        return
    refusal = None
    try:
        judged(xml)
    except SignOnRefused as error:
        refusal = error
    if refusal:
        assert str(refusal)
        assert refusal.advice
    else:
        # What differs outside of the signature, such as a blank in the response's tag, is not an attack.
        root = etree.fromstring(xml)
        original = etree.fromstring(GOOD).find(saml("Assertion"))
        same = etree.tostring(root.find(saml("Assertion")), method="c14n", exclusive=True)
        assert same == etree.tostring(original, method="c14n", exclusive=True) or b"KeyInfo" in same


@pytest.fixture(scope="module")
def settings_of_saml() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("django.conf.settings.BASE_URL", "http://testserver", raising=False)
        yield


@given(st.text(max_size=30))
def test_a_time_is_read_or_none(text: str) -> None:
    assert instant(text) is None or text[4] == "-"


@pytest.mark.parametrize(
    ("text", "iso"),
    [("2026-11-29T10:00:00Z", "2026-11-29T10:00:00+00:00"),
     ("2026-11-29T10:00:00.25Z", "2026-11-29T10:00:00.250000+00:00"),
     ("2026-11-29T10:00:00.1234567Z", "2026-11-29T10:00:00.123456+00:00"), ("2026-11-29T10:00:00+02:00", None),
     ("2026-02-30T10:00:00Z", None), ("2026-11-29", None), ("٢٠٢٦-11-29T10:00:00Z", None)],
)  # fmt: skip
def test_times_of_providers(text: str, iso: str | None) -> None:
    at = instant(text)
    assert (at and at.isoformat()) == iso
