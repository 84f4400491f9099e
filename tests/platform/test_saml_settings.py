"""Reading of SETPOINT_SAML_*: providers are whole, or the process does not start and names the variable."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding

from accounts.providers import OidcProvider
from accounts.signon.saml.names import NAME_IDS
from config import env, oidc, saml
from config.doctor import certificates
from config.env import BadEnvironment
from tests.accounts.signon.saml import idp

ROLES = '[{"group": "ops", "role": "operator", "scope": "env:staging"}]'
CORP = {
    "SETPOINT_SAML_PROVIDERS": "corp",
    "SETPOINT_SAML_CORP_ENTITY_ID": idp.ENTITY,
    "SETPOINT_SAML_CORP_SSO_URL": idp.SSO,
    "SETPOINT_SAML_CORP_CERTIFICATES": idp.CERTIFICATE,
    "SETPOINT_SAML_CORP_ROLES": ROLES,
}
CLAIMS = "http://schemas.xmlsoap.org/ws/2005/05/identity/claims/"
OIDC = OidcProvider("oidc", "Other", "https://oidc.example.com", (), client_id="x", client_secret="y")


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Read the providers of these variables, which replace or (None) take away those of one that is right."""

    def read(**changes: str | None) -> Any:
        for name, value in (CORP | changes).items():
            if value is None:
                monkeypatch.delenv(name, raising=False)
            else:
                monkeypatch.setenv(name, value)
        return saml.providers(env.words("SETPOINT_SAML_PROVIDERS"), beside=(OIDC,))

    return read


def test_a_provider_is_read_whole(read: Any, tmp_path: Path) -> None:
    (tmp_path / "idp.pem").write_text(idp.CERTIFICATE + "\n" + idp.EC_CERTIFICATE)
    (corp,) = read(
        SETPOINT_SAML_CORP_CERTIFICATES=None,
        SETPOINT_SAML_CORP_CERTIFICATES_FILE=str(tmp_path / "idp.pem"),
        SETPOINT_SAML_CORP_NAME="Example Corp",
        SETPOINT_SAML_CORP_GROUPS_ATTRIBUTE="http://schemas.microsoft.com/ws/2008/06/identity/claims/groups",
        SETPOINT_SAML_CORP_SCIM_GROUPS="externalId",
        SETPOINT_SAML_CORP_SCIM_SUBJECT="oid",
    )
    assert (corp.name, corp.issuer, corp.sso_url, corp.name_id) == ("Example Corp", idp.ENTITY, idp.SSO, "persistent")
    assert len(corp.certificates) == 2
    assert corp.groups_claim.endswith("claims/groups")
    assert (corp.email_claim, corp.scim_subject, corp.scim_groups) == ("email", "oid", "externalId")
    assert corp.roles_of(["ops"]) == {("operator", "env:staging")}


def test_a_name_id_that_is_an_address_is_the_address_too_unless_another_is_named(read: Any) -> None:
    (corp,) = read(SETPOINT_SAML_CORP_NAME_ID="email")
    assert (corp.name_id, corp.email_claim) == ("email", "NameID")
    (corp,) = read(SETPOINT_SAML_CORP_NAME_ID="email", SETPOINT_SAML_CORP_EMAIL_ATTRIBUTE="mail")
    assert corp.email_claim == "mail"


def test_a_certificate_is_read_as_metadata_has_it(read: Any) -> None:
    bare = "".join(idp.CERTIFICATE.split("-----")[2].split())
    (corp,) = read(SETPOINT_SAML_CORP_CERTIFICATES=bare)
    assert corp.certificates == (idp.CERTIFICATE,)


def weak() -> str:
    return idp.certificate(rsa.generate_private_key(public_exponent=65537, key_size=1024))


@pytest.mark.parametrize(
    ("part", "value"),
    [("ENTITY_ID", None), ("SSO_URL", None), ("CERTIFICATES", None), ("ROLES", None),
     ("ENTITY_ID", "two words"), ("ENTITY_ID", "x" * 501), ("ENTITY_ID", OIDC.issuer),
     ("SSO_URL", "http://idp.example.com/sso"), ("SSO_URL", "javascript:alert(1)"), ("SSO_URL", "idp.example.com"),
     ("SSO_URL", "https://u:p@idp.example.com"), ("SSO_URL", "https://idp.example.com/#x"),
     ("CERTIFICATES", "rubbish"), ("CERTIFICATES", idp.CERTIFICATE[:400]), ("CERTIFICATES", idp.CERTIFICATE + "x"),
     ("CERTIFICATES", "-----BEGIN PRIVATE KEY-----\nMII=\n-----END PRIVATE KEY-----"),
     ("CERTIFICATES", idp.CERTIFICATE.replace("M", "N", 1)), ("CERTIFICATES", weak()),
     ("NAME_ID", "transient"), ("GROUPS_ATTRIBUTE", "email"), ("GROUPS_ATTRIBUTE", "two words"),
     ("EMAIL_ATTRIBUTE", "é"), ("SCIM_SUBJECT", "email"), ("SCIM_SUBJECT", "groups"), ("SCIM_GROUPS", "name"),
     ("SCIM_SUBJECT", "mail"), ("SCIM_SUBJECT", "displayName"), ("SCIM_SUBJECT", "preferred_username"),
     ("SCIM_SUBJECT", "NameID"), ("SCIM_SUBJECT", f"{CLAIMS}upn"), ("SCIM_SUBJECT", "urn:oid:2.5.4.3"),
     ("GROUPS_ATTRIBUTE", "givenName"), ("GROUPS_ATTRIBUTE", "cn"), ("GROUPS_ATTRIBUTE", f"{CLAIMS}emailaddress"),
     ("TRUST_AUTHN_INSTANT", "maybe"), ("ROLES", "[{group: ops}]"), ("CERTIFICATE", idp.CERTIFICATE)],
)  # fmt: skip
def test_a_provider_that_is_half_set_or_misspelled_does_not_start(read: Any, part: str, value: str | None) -> None:
    with pytest.raises(BadEnvironment, match=f"SETPOINT_SAML_CORP_{part}"):
        read(**{f"SETPOINT_SAML_CORP_{part}": value})


@pytest.mark.parametrize("part", ["SCIM_SUBJECT", "GROUPS_ATTRIBUTE"])
@pytest.mark.parametrize("of", ["EMAIL", "FIRST_NAME", "LAST_NAME"])
def test_the_attributes_of_name_and_address_give_nothing_else(read: Any, part: str, of: str) -> None:
    with pytest.raises(BadEnvironment, match=f"SETPOINT_SAML_CORP_{part} must be an attribute that its person cannot"):
        read(**{f"SETPOINT_SAML_CORP_{part}": "Known-As", f"SETPOINT_SAML_CORP_{of}_ATTRIBUTE": "known-as"})


def test_a_name_id_is_written_as_sub(read: Any) -> None:
    with pytest.raises(BadEnvironment, match="SCIM_SUBJECT: write sub"):
        read(SETPOINT_SAML_CORP_SCIM_SUBJECT="NameID")


def test_the_time_of_a_log_in_there_is_believed_where_the_operator_says_so(read: Any) -> None:
    assert not read()[0].trusts_authn_instant
    assert read(SETPOINT_SAML_CORP_TRUST_AUTHN_INSTANT="true")[0].trusts_authn_instant


def test_a_certificate_of_an_unknown_curve_names_the_variable(read: Any) -> None:
    der = idp.x509.load_pem_x509_certificate(idp.EC_CERTIFICATE.encode()).public_bytes(Encoding.DER)
    curve = bytes.fromhex("06082a8648ce3d030107")
    assert curve in der
    odd = base64.b64encode(der.replace(curve, bytes.fromhex("06082a8648ce3d030177"))).decode()
    with pytest.raises(BadEnvironment, match=r"SETPOINT_SAML_CORP_CERTIFICATES\[0\]"):
        read(SETPOINT_SAML_CORP_CERTIFICATES=odd)


def test_a_key_of_another_kind_is_refused() -> None:
    key = ed25519.Ed25519PrivateKey.generate()
    name = idp.x509.Name([idp.x509.NameAttribute(idp.NameOID.COMMON_NAME, "idp")])
    begins = datetime.now(UTC)
    made = idp.x509.CertificateBuilder(name, name, key.public_key(), 1, begins, begins + timedelta(days=1)).sign(
        key, None
    )
    pem = made.public_bytes(idp.Encoding.PEM).decode()
    with pytest.raises(BadEnvironment, match="neither RSA nor"):
        saml.certificates("X", pem)


@pytest.mark.parametrize(
    ("listed", "says"), [("oidc", "names oidc already"), ("corp,corp", "twice"), ("Corp", "no key")]
)
def test_keys_are_one_providers(read: Any, listed: str, says: str) -> None:
    with pytest.raises(BadEnvironment, match=says):
        read(SETPOINT_SAML_PROVIDERS=listed, **dict.fromkeys([name for name in CORP if "CORP" in name]))


def test_two_providers_of_one_name_do_not_start(read: Any) -> None:
    again = {name.replace("CORP", "OTHER"): value for name, value in CORP.items() if "CORP" in name}
    with pytest.raises(BadEnvironment, match="ENTITY_ID"):
        read(**again | {"SETPOINT_SAML_PROVIDERS": "corp,other"})


def test_formats_of_names_are_those_of_accounts() -> None:
    assert tuple(NAME_IDS) == saml.NAME_IDS


# ── Their certificates, in `doctor` ───────────────────────────────────────────────────────────────────────────────────
@pytest.mark.parametrize(
    ("days", "begun", "states"),
    [(365, 30, ["ok"]), (61, 30, ["ok"]), (59, 30, ["warning"]), (29, 30, ["warning", "problem"]),
     (365, -5, ["warning", "problem"])],
)  # fmt: skip
def test_the_doctor_tells_of_a_certificate_before_it_expires(
    settings: Any, days: int, begun: int, states: list[str]
) -> None:
    pem = idp.certificate(idp.KEY, days=days, begins=datetime.now(UTC) - timedelta(days=begun))
    settings.SETPOINT_SAML = (idp.provider(certificates=(pem,)),)
    findings = list(certificates.configured())
    assert [finding.state for finding in findings] == states
    assert all(finding.advice for finding in findings if finding.state != "ok")


def test_an_expired_certificate_beside_a_valid_one_is_no_problem(settings: Any) -> None:
    settings.SETPOINT_SAML = (idp.provider(certificates=(idp.certificate(idp.KEY, days=10), idp.CERTIFICATE)),)
    assert [finding.state for finding in certificates.configured()] == ["warning", "ok"]


def test_passwords_may_be_closed_where_saml_is_the_way_in() -> None:
    assert oidc.local_accounts(["emergency@example.com"], (idp.provider(),)) == {"emergency@example.com"}
    with pytest.raises(BadEnvironment, match="SETPOINT_SAML_PROVIDERS"):
        oidc.local_accounts(["emergency@example.com"], ())
