"""Foundation of every API view: strict JSON, ordering, field selection, versions, idempotency, token scopes.

A view derives from `ApiView` or `ApiViewSet` and declares `scope_for`: which token scope each method or viewset action
needs. A view that declares none is refused by a test. Roles are the services' business, not this module's.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol

from rest_framework import permissions, status
from rest_framework.exceptions import ValidationError
from rest_framework.renderers import JSONRenderer
from rest_framework.request import Request
from rest_framework.response import Response
from rest_framework.serializers import BaseSerializer
from rest_framework.views import APIView
from rest_framework.viewsets import GenericViewSet

from common.bodies import refuse_body
from common.errors import Invalid, Refusal, Stale
from common.idempotency import RequestClaim, StoredAnswer, idempotency
from common.paging import Paging


class PreconditionRequired(Refusal):
    """The write must say which version it is based on."""

    status = 428
    code = "precondition-required"


# ── Lists ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
class SelectedFields:
    """Mixin of a generic view: `?fields=id,name` on reads drops the other fields of the answer."""

    def get_serializer(self, *args: Any, **kwargs: Any) -> BaseSerializer[Any]:
        serializer: BaseSerializer[Any] = super().get_serializer(*args, **kwargs)  # type: ignore[misc]
        request: Request = self.request  # type: ignore[attr-defined]
        requested = {name.strip() for name in request.query_params.get("fields", "").split(",") if name.strip()}
        if not requested or request.method not in permissions.SAFE_METHODS:
            return serializer
        inner: Any = getattr(serializer, "child", serializer)
        if unknown := sorted(requested - set(inner.fields)):
            known = ", ".join(inner.fields)
            raise ValidationError({"fields": [f"Unknown: {', '.join(unknown)}. There are {known}."]})
        for name in set(inner.fields) - requested:
            inner.fields.pop(name)
        return serializer


# ── Versions ──────────────────────────────────────────────────────────────────────────────────────────────────────────
class Versioned(Protocol):
    version: int


def etag_of(row: Versioned) -> str:
    """A strong tag: the same version is the same text."""
    return f'"{row.version}"'


def with_etag(response: Response, row: Versioned) -> Response:
    response["ETag"] = etag_of(row)
    return response


def expected_version(request: Request, row: Versioned) -> int:
    """The version this write is based on, from If-Match. Hand it to the service, which updates only that version.

    Raises PreconditionRequired without the header, Stale when the row has moved on. `*` accepts the present version;
    weak tags never match (RFC 9110 asks for strong comparison).
    """
    header = request.headers.get("If-Match", "").strip()
    if not header:
        raise PreconditionRequired(f"Send If-Match: {etag_of(row)} (the ETag you read), so that no change is lost.")
    if header == "*" or etag_of(row) in (tag.strip() for tag in header.split(",")):
        return row.version
    raise Stale(
        f"This was changed meanwhile: the current version is {etag_of(row)}, you sent {header[:80]}. "
        "Reload and try again."
    )


# ── Idempotency ───────────────────────────────────────────────────────────────────────────────────────────────────────
_KEY = re.compile(r"[\x21-\x7e]{1,255}")
_KEPT_HEADERS = ("Location", "ETag")
REPLAYED = "Idempotency-Replayed"
"""Header of an answer to a request that was carried out before."""


# ── Views ─────────────────────────────────────────────────────────────────────────────────────────────────────────────
class ApiView(APIView):
    """Declares `scope_for = {"GET": "read", "POST": "plan"}`; keys are methods or a viewset's action names."""

    scope_for: ClassVar[Mapping[str, str]] = {}
    shown_once: ClassVar[Sequence[str]] = ()
    """Fields of the answer that are not kept for an Idempotency-Key: repeated, they are null."""
    needs_role: ClassVar[bool] = True
    """False where each account is shown its own alone: an account without a role may read it."""
    once_only: ClassVar[bool] = True
    """False where sending the same again changes nothing anyway: an Idempotency-Key is then not looked at."""
    _claim: RequestClaim | None = None

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super().initial(request, *args, **kwargs)
        if request.method == "DELETE":
            refuse_body(request)
        key = request.headers.get("Idempotency-Key")
        if key is None or request.method != "POST" or not self.once_only or idempotency.claim is None:
            return
        if not _KEY.fullmatch(key):
            raise Invalid("Idempotency-Key must be 1 to 255 visible ASCII characters.", fields={"Idempotency-Key": []})
        fingerprinted = b"\0".join((b"POST", request.get_full_path().encode(), request._request.body))
        self._claim = idempotency.claim(
            user=request.user, key=key, fingerprint=hashlib.sha256(fingerprinted).hexdigest()
        )

    def handle_exception(self, exc: Exception) -> Response:
        if isinstance(exc, StoredAnswer):
            headers = dict(exc.headers) | {REPLAYED: "true"}
            return Response(json.loads(exc.body) if exc.body else None, status=exc.status, headers=headers)
        if self._claim is not None:  # nothing was created: the key is free again
            self._claim.forget()
            self._claim = None
        response: Response = super().handle_exception(exc)
        return response

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        response = super().finalize_response(request, response, *args, **kwargs)
        if self._claim is not None:
            claim, self._claim = self._claim, None
            if status.is_success(response.status_code):
                kept = {name: response[name] for name in _KEPT_HEADERS if name in response}
                data = response.data
                if self.shown_once:
                    data = {name: None if name in self.shown_once else value for name, value in data.items()}
                body = "" if data is None else JSONRenderer().render(data).decode()
                claim.finish(status=response.status_code, headers=kept, body=body)
            else:
                claim.forget()
        return response


class ApiViewSet(SelectedFields, ApiView, GenericViewSet[Any]):
    """Retrieves one object by itself, with its ETag if `is_versioned`: add DRF's List… mixins, not its Retrieve one."""

    pagination_class = Paging
    ordering_fields: ClassVar[Sequence[str]] = ()
    is_versioned: ClassVar[bool] = False

    def get_object(self) -> Any:
        """Return the object; an action on a versioned one honors If-Match where it is sent: the verb is for what
        was read."""
        row = super().get_object()
        if self.is_versioned and self.request.method == "POST" and "If-Match" in self.request.headers:
            expected_version(self.request, row)
        return row

    def retrieve(self, request: Request, *args: Any, **kwargs: Any) -> Response:
        row = self.get_object()
        response = Response(self.get_serializer(row).data)
        return with_etag(response, row) if self.is_versioned else response


def created(data: Any, location: str, row: Versioned | None = None) -> Response:
    response = Response(data, status=status.HTTP_201_CREATED, headers={"Location": location})
    return with_etag(response, row) if row else response


def form_of_file(request: Request) -> str:
    """`csv` or `json`, as `?as=` asks. A file holds the whole list. Raises ValidationError."""
    form = request.query_params.get("as", "csv")
    if form not in ("csv", "json"):
        raise ValidationError({"as": [f"Write csv or json, not {form[:40]!r}."]})
    if clash := {"limit", "offset", "start", "ordering", "fields"} & set(request.query_params):
        raise ValidationError({sorted(clash)[0]: ["A file holds the whole list, in the order of keys."]})
    return form


def accepted(data: Any, location: str) -> Response:
    """Return the 202 of `POST …/actions/<verb>`: the work continues, and `location` reports its progress."""
    return Response(data, status=status.HTTP_202_ACCEPTED, headers={"Location": location})
