"""The authorization code flow by django-allauth: discovery, PKCE, state, nonce, and a code exchanged for claims.

allauth makes the redirect, keeps the state in the session and exchanges the code; its pages, its tables and its own
matching of accounts are not used. Its apps are installed because its code imports their models.
"""

from __future__ import annotations

import hmac
import logging
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import requests
from allauth.socialaccount.adapter import DefaultSocialAccountAdapter
from allauth.socialaccount.internal import statekit
from allauth.socialaccount.models import SocialApp
from allauth.socialaccount.providers.oauth2.client import OAuth2Error
from allauth.socialaccount.providers.openid_connect.provider import OpenIDConnectProvider
from allauth.socialaccount.providers.openid_connect.views import OpenIDConnectOAuth2Adapter
from django.conf import settings
from django.http import HttpRequest, HttpResponseRedirect
from django.urls import reverse

from accounts.providers import OidcProvider
from accounts.signon import id_tokens
from accounts.signon.refusals import BadClaims, BadToken, Cancelled, Expired, Misconfigured, ProviderDown, SignOnRefused
from common import hooks

log = logging.getLogger(__name__)

ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")
_ERROR = re.compile(r'"error"\s*:\s*"(invalid_client|unauthorized_client|invalid_grant|invalid_request)"')


@dataclass(frozen=True, slots=True)
class Verified:
    """A person whom the provider vouches for, and the page that they wanted."""

    claims: dict[str, Any]
    next: str


class Adapter(DefaultSocialAccountAdapter):  # type: ignore[misc]
    """allauth's adapter: providers come from the settings only, and connections are made under the egress policy."""

    def list_apps(self, request: HttpRequest, provider: str | None = None, client_id: str | None = None) -> list[Any]:
        """allauth would add the rows of its table, and so believe any issuer that was written there by hand."""
        apps = [_app(configured) for configured in settings.SETPOINT_OIDC]
        return [app for app in apps if provider in (None, app.provider, app.provider_id)]

    def get_requests_session(self) -> requests.Session:
        session: requests.Session = hooks.web_session()[0]
        return session


def _app(provider: OidcProvider) -> SocialApp:
    return SocialApp(
        provider=OpenIDConnectProvider.id,
        provider_id=provider.key,
        name=provider.name,
        client_id=provider.client_id,
        secret=provider.client_secret,
        settings={"server_url": provider.issuer.rstrip("/"), "token_auth_method": provider.auth_method or None},
    )


class CodeFlow(OpenIDConnectOAuth2Adapter):  # type: ignore[misc]
    """allauth's flow with one provider; its discovery document is checked before it is used."""

    def get_provider(self) -> Door:
        return Door(self.request, app=_app(_configured(self.provider_id)))

    @property
    def openid_config(self) -> dict[str, Any]:
        if not hasattr(self, "_checked"):
            door = self.get_provider()
            document = self.fetch(door.server_url)
            _check_discovery(document, _configured(self.provider_id))
            self._checked: dict[str, Any] = document
        return self._checked

    def get_callback_url(self, request: HttpRequest, app: SocialApp) -> str:
        """Build it on SETPOINT_URL, as it is registered there: a Host header must not decide where a code is sent."""
        return f"{settings.BASE_URL.rstrip('/')}{reverse('accounts:sign_on_back', args=[self.provider_id])}"

    def fetch(self, url: str) -> Any:
        with Adapter(self.request).get_requests_session() as session:
            response = session.get(url)
            response.raise_for_status()
            return response.json()


class Door(OpenIDConnectProvider):  # type: ignore[misc]
    oauth2_adapter_class = CodeFlow


def begin(
    request: HttpRequest, provider: OidcProvider, next_url: str, *, is_step_up: bool = False
) -> HttpResponseRedirect:
    """Send the browser to the provider. Waits on the network. Raises SignOnRefused.

    `is_step_up`: the provider is asked not to rely on a log-in that it remembers, and to tell when the log-in was. One
    that does not do so is noticed by that time.
    """
    nonce = secrets.token_urlsafe(32)
    door = CodeFlow(request, provider.key).get_provider()
    try:
        answer = door.redirect(
            request,
            process="login",
            next_url=next_url,
            auth_params={"nonce": nonce} | ({"prompt": "login", "max_age": "0"} if is_step_up else {}),
            scope=list(provider.scopes),
            nonce=nonce,
        )
    except (requests.RequestException, OAuth2Error) as error:
        raise _down(error, provider) from None
    assert isinstance(answer, HttpResponseRedirect)
    return answer


def finish(request: HttpRequest, provider: OidcProvider) -> Verified:
    """Verify the provider's answer in this request. Waits on the network. Raises SignOnRefused."""
    state = statekit.unstash_state(request, state_id=request.GET.get("state", ""), provider_id=provider.key)
    if not state:
        raise Expired("This log-in is not in progress here: it took too long, was used already, or began elsewhere.")
    _check_answer(request, provider)
    flow = CodeFlow(request, provider.key)
    try:
        claims = _exchange(flow, provider, state)
    except OAuth2Error as error:
        raise _not_exchanged(error, provider) from None
    except (requests.RequestException, ValueError) as error:
        raise _down(error, provider) from None
    return Verified(claims, str(state.get("next") or ""))


def _exchange(flow: CodeFlow, provider: OidcProvider, state: dict[str, Any]) -> dict[str, Any]:
    answer = _redeem(flow, provider, state)
    keys = flow.fetch(flow.openid_config["jwks_uri"])
    claims = id_tokens.verify(answer.get("id_token"), provider=provider, nonce=str(state.get("nonce") or ""), keys=keys)
    wanted = ("email", provider.groups_claim)
    if all(name in claims for name in wanted) or "userinfo_endpoint" not in flow.openid_config:
        return claims
    return _with_userinfo(flow, provider, claims, str(answer["access_token"]), wanted)


def _redeem(flow: CodeFlow, provider: OidcProvider, state: dict[str, Any]) -> dict[str, Any]:
    """Exchange the code for tokens. Raises OAuth2Error, requests.RequestException."""
    client = flow.get_client(flow.request, _app(provider))
    try:
        answer = flow.get_access_token_data(
            flow.request, _app(provider), client, pkce_code_verifier=state["pkce_code_verifier"]
        )
    except (KeyError, TypeError) as error:  # allauth relies on headers and types that an answer may lack
        raise OAuth2Error("not an answer of a token endpoint") from error
    if not isinstance(answer, dict):
        raise OAuth2Error("not an answer of a token endpoint")
    return answer


def _with_userinfo(
    flow: CodeFlow, provider: OidcProvider, claims: dict[str, Any], access_token: str, wanted: Sequence[str]
) -> dict[str, Any]:
    """Add the claims that many providers put only there. What is signed wins."""
    more = flow._fetch_user_info(access_token)
    if not isinstance(more, dict) or not isinstance(more.get("sub"), str):
        raise BadClaims(f"{provider.name} answered with something that is no user information.")
    if not hmac.compare_digest(more["sub"].encode(), claims["sub"].encode()):
        raise BadToken(f"{provider.name} sent the user information of another person.")
    names = {*wanted, "email_verified", "given_name", "family_name", "_claim_names"}
    if "email" in claims:
        names -= {"email_verified"}  # it is about the address beside it
    return {**{name: more[name] for name in names if name in more}, **claims}


def _check_answer(request: HttpRequest, provider: OidcProvider) -> None:
    """Raises SignOnRefused unless the provider's answer brings a code, and is its own (RFC 9207)."""
    if "iss" in request.GET and request.GET["iss"] != provider.issuer:
        raise BadToken(f"The answer is of another provider than {provider.name}.", "Start again from this page.")
    error = request.GET.get("error", "")
    if error == "access_denied":
        raise Cancelled(f"{provider.name} did not let you in, or the log-in was cancelled there.")
    if error in ("login_required", "interaction_required", "account_selection_required", "consent_required"):
        raise Cancelled(f"{provider.name} wants you to log in there first.")
    if error in ("server_error", "temporarily_unavailable"):
        raise ProviderDown(f"{provider.name} could not log you in now: {error}.")
    if error:
        word = error if re.fullmatch(r"[a-z_]{1,40}", error) else "unknown error"
        raise Misconfigured(f"{provider.name} refused the request of this installation: {word}.")
    if not request.GET.get("code"):
        raise BadToken(f"{provider.name} sent you back without a code.")


def _check_discovery(document: object, provider: OidcProvider) -> None:
    """Raises Misconfigured, naming what is wrong with the provider's discovery document."""
    if not isinstance(document, dict):
        raise Misconfigured(f"The discovery document of {provider.name} is no JSON object.")
    if document.get("issuer") != provider.issuer:
        raise Misconfigured(f"The discovery document of {provider.name} names another issuer than {provider.issuer}.")
    secure = urlsplit(provider.issuer).scheme == "https"
    for name in (*ENDPOINTS, *(("userinfo_endpoint",) if "userinfo_endpoint" in document else ())):
        url = document.get(name)
        if not isinstance(url, str) or not url.startswith(("https://",) if secure else ("https://", "http://")):
            raise Misconfigured(f"The discovery document of {provider.name} has no usable {name}.")


def _not_exchanged(error: OAuth2Error, provider: OidcProvider) -> SignOnRefused:
    """allauth's error quotes the whole answer, which may hold tokens: only a known word of it is used."""
    match = _ERROR.search(str(error))
    word = match[1] if match else ""
    log.warning("single sign-on: %s did not exchange a code (%s)", provider.key, word or "no known error")
    if word == "invalid_grant":
        return Expired(f"{provider.name} does not accept this code: it was used already, or is too old.")
    if word:
        return Misconfigured(f"{provider.name} does not accept this installation's client: {word}.")
    return ProviderDown(f"{provider.name} answered the exchange of the code with something unexpected.")


def _down(error: Exception, provider: OidcProvider) -> SignOnRefused:
    """The address is logged, never what was sent or answered."""
    log.warning("single sign-on: %s gives no usable answer (%s)", provider.key, type(error).__name__)
    response = getattr(error, "response", None)
    if response is not None and 300 <= response.status_code < 500:
        return Misconfigured(f"{provider.name} answers with status {response.status_code}.")
    return ProviderDown(f"{provider.name} cannot be reached now, or does not answer as an OpenID Connect provider.")


def _configured(key: str) -> OidcProvider:
    return next(provider for provider in settings.SETPOINT_OIDC if provider.key == key)
