"""Requests to a browser, and the verification of its answers: WebAuthn Level 3, section 7, by `fido2`.

Beyond what the library verifies (type, origin, challenge, RP ID hash, presence, verification, signature), answers are
bounded in size, algorithms and keys, and refused from frames of other sites, with a user handle of another account, and
where the flags of a synced credential contradict each other or the registration.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec
from fido2 import cbor
from fido2.cose import ES256, RS256, CoseKey, EdDSA
from fido2.server import Fido2Server
from fido2.utils import websafe_decode, websafe_encode
from fido2.webauthn import (
    Aaguid,
    AttestationConveyancePreference,
    AttestedCredentialData,
    AuthenticationResponse,
    AuthenticatorData,
    CollectedClientData,
    PublicKeyCredentialDescriptor,
    PublicKeyCredentialParameters,
    PublicKeyCredentialRpEntity,
    PublicKeyCredentialType,
    PublicKeyCredentialUserEntity,
    RegistrationResponse,
    ResidentKeyRequirement,
    UserVerificationRequirement,
)

from accounts.models import Passkey
from accounts.passkeys import relying_party
from accounts.passkeys.challenges import LASTS

MOST_CHARACTERS = 12_000
"""Of an answer as JSON. An RSA key of 4096 bits and the longest credential ID make about 4 000."""
MOST_ID_BYTES = 1023
"""WebAuthn's own limit."""
RSA_BITS = range(2048, 4097)
RSA_EXPONENT = 65537
ALGORITHMS: tuple[type[CoseKey], ...] = (ES256, EdDSA, RS256)
"""What authenticators have (RS256: TPMs of Windows Hello), best first; the standard's own recommendation."""
_PRESENCE = UserVerificationRequirement.PREFERRED
_VERIFIED = UserVerificationRequirement.REQUIRED


class NotProved(Exception):
    """The answer proves nothing. The message has the reason, for the audit record and not for the browser."""


@dataclass(frozen=True, slots=True)
class Registered:
    """A credential that was made: as the row of a passkey holds it."""

    credential: str
    public_key: str
    sign_count: int
    is_syncable: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """An assertion that was read and not verified yet. `credential`: the ID that it names, base64url."""

    credential: str
    response: AuthenticationResponse


# ── Registration ──────────────────────────────────────────────────────────────────────────────────────────────────────
def creation_options(challenge: bytes, *, user_handle: str, email: str, present: Sequence[Passkey]) -> dict[str, Any]:
    """Ask for a discoverable credential whose use is verified (PIN, fingerprint), and for no attestation."""
    options, _ = _server().register_begin(
        PublicKeyCredentialUserEntity(id=websafe_decode(user_handle), name=email, display_name=email),
        _descriptors(present),
        resident_key_requirement=ResidentKeyRequirement.REQUIRED,
        user_verification=_VERIFIED,
        challenge=challenge,
    )
    return dict(options)


def registered(text: str, challenge: bytes) -> Registered:
    """Return the credential of a browser's answer. Raises NotProved."""
    data = _json_of(text)
    try:
        response = RegistrationResponse.from_dict(data)
        client_data, auth_data = response.response.client_data, response.response.attestation_object.auth_data
        _check_frame(client_data)
        credential = auth_data.credential_data
        if credential is None:
            raise NotProved("no credential in it")
        _server().register_complete(_state(challenge, _VERIFIED), response)
        _check_flags(auth_data)
        if not 0 < len(credential.credential_id) <= MOST_ID_BYTES or response.raw_id != credential.credential_id:
            raise NotProved("a credential ID that is too long, or not the one named")
        key = checked_key(credential.public_key)
    except NotProved:
        raise
    except Exception as error:  # the library raises all errors of its parsers, up to RecursionError
        raise NotProved(_reason(error)) from error
    return Registered(websafe_encode(credential.credential_id), key, auth_data.counter, auth_data.is_backup_eligible())


def checked_key(key: CoseKey) -> str:
    """Return the key as it is stored, with the parameters of its algorithm alone. Raises NotProved, ValueError."""
    kind, algorithm = key.get(1), type(key)
    if algorithm is ES256 and kind == 2 and key[-1] == 1 and len(key[-2]) == len(key[-3]) == 32:
        x, y = int.from_bytes(key[-2]), int.from_bytes(key[-3])
        ec.EllipticCurvePublicNumbers(x, y, ec.SECP256R1()).public_key()  # refuses a point that is not on the curve
        names: tuple[int, ...] = (1, 3, -1, -2, -3)
    elif algorithm is EdDSA and kind == 1 and key[-1] == 6 and len(key[-2]) == 32:
        names = (1, 3, -1, -2)
    elif algorithm is RS256 and kind == 3:
        bits, exponent = int.from_bytes(key[-1]).bit_length(), int.from_bytes(key[-2])
        if bits not in RSA_BITS or exponent != RSA_EXPONENT:
            raise NotProved(f"an RSA key of {bits} bits with the exponent {exponent}")
        names = (1, 3, -1, -2)
    else:
        raise NotProved("an algorithm that was not offered, or a key that does not fit it")
    return websafe_encode(cbor.encode({name: key[name] for name in names}))


# ── Use ───────────────────────────────────────────────────────────────────────────────────────────────────────────────
def request_options(challenge: bytes, *, present: Sequence[Passkey] | None, is_verified: bool) -> dict[str, Any]:
    """Ask for a use. `present`: None where no one is known yet, so that the request says nothing of any account."""
    options, _ = _server().authenticate_begin(
        None if present is None else _descriptors(present), _VERIFIED if is_verified else _PRESENCE, challenge
    )
    return dict(options)


def read(text: str) -> Answer:
    """Return what a browser answered, of which nothing is verified yet. Raises NotProved."""
    data = _json_of(text)
    try:
        response = AuthenticationResponse.from_dict(data)
        credential = websafe_encode(response.raw_id)
    except Exception as error:  # see `registered`
        raise NotProved(_reason(error)) from error
    if not 0 < len(response.raw_id) <= MOST_ID_BYTES:
        raise NotProved("a credential ID of that length")
    return Answer(credential, response)


def verify(answer: Answer, row: Passkey, challenge: bytes, *, is_verified: bool, names_its_user: bool) -> int:
    """Return the signature counter of an answer by this passkey. Raises NotProved.

    `is_verified`: the authenticator must have verified its user. `names_its_user`: a log-in without a name, for which
    the answer must carry the user handle.
    """
    response = answer.response.response
    try:
        _check_frame(response.client_data)
        key = CoseKey.parse(cbor.decode(websafe_decode(row.public_key)))  # type: ignore[arg-type]
        checked_key(key)
        known = AttestedCredentialData.create(Aaguid.NONE, websafe_decode(row.credential), key)
        state = _state(challenge, _VERIFIED if is_verified else _PRESENCE)
        _server().authenticate_complete(state, [known], answer.response)
        _check_flags(response.authenticator_data)
    except NotProved:
        raise
    except Exception as error:  # see `registered`
        raise NotProved(_reason(error)) from error
    handle = response.user_handle
    if (names_its_user and not handle) or (handle and websafe_encode(handle) != row.user_handle):
        raise NotProved("the user handle of another account, or none")
    if response.authenticator_data.is_backup_eligible() != row.is_syncable:
        raise NotProved("a synced passkey that was not one when it was registered, or the reverse")
    return response.authenticator_data.counter


# ── Both ──────────────────────────────────────────────────────────────────────────────────────────────────────────────
def _server() -> Fido2Server:
    origin = relying_party.origin()
    server = Fido2Server(
        PublicKeyCredentialRpEntity(id=relying_party.rp_id(), name=relying_party.NAME),
        attestation=AttestationConveyancePreference.NONE,
        verify_origin=lambda given: given == origin,  # the library's own rule lets every subdomain in
    )
    server.timeout = int(LASTS.total_seconds() * 1000)  # type: ignore[assignment]
    server.allowed_algorithms = [
        PublicKeyCredentialParameters(type=PublicKeyCredentialType.PUBLIC_KEY, alg=kind.ALGORITHM)
        for kind in ALGORITHMS
    ]
    return server


def _state(challenge: bytes, verification: UserVerificationRequirement) -> dict[str, Any]:
    return {"challenge": websafe_encode(challenge), "user_verification": verification}


def _descriptors(rows: Sequence[Passkey]) -> list[PublicKeyCredentialDescriptor]:
    kind = PublicKeyCredentialType.PUBLIC_KEY
    return [PublicKeyCredentialDescriptor(type=kind, id=websafe_decode(row.credential)) for row in rows]


def _json_of(text: str) -> dict[str, Any]:
    if len(text) > MOST_CHARACTERS:
        raise NotProved("an answer that is too long")
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotProved("no JSON") from error
    if not isinstance(data, dict):
        raise NotProved("no object of JSON")
    return data


def _check_frame(client_data: CollectedClientData) -> None:
    """Refuse an answer that was made in a frame of another site: no page of ours is ever in one."""
    inside = json.loads(bytes(client_data))
    if inside.get("crossOrigin", False) is not False or "topOrigin" in inside:
        raise NotProved("made in a frame of another site")


def _check_flags(auth_data: AuthenticatorData) -> None:
    if auth_data.is_backed_up() and not auth_data.is_backup_eligible():
        raise NotProved("backed up, and cannot be")


def _reason(error: Exception) -> str:
    """Return the library's sentence, bounded; it has no secret in it."""
    return f"{type(error).__name__}: {error}"[:120]
