from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from django.test import Client

from tests.accounts.signon.saml import idp
from tests.accounts.signon.saml.idp import Answer

LogIn = Callable[..., Any]


@pytest.fixture
def corp(settings: Any) -> None:
    """A provider that Setpoint is set to believe."""
    settings.BASE_URL = "http://testserver"
    settings.SETPOINT_SAML = (idp.provider(),)


@pytest.fixture
def log_in(corp: None, settings: Any) -> LogIn:
    """Log in with an answer that differs so from a good one; returns Setpoint's answer that ends it."""

    def log_in(client: Client | None = None, given: Answer | None = None, **over: Any) -> Any:
        browser = client or Client()
        begun = browser.get("/login/saml/corp/")
        assert begun.status_code == 302, begun.content
        return browser.post("/login/saml/corp/acs/", idp.form(begun["Location"], replace(given or Answer(), **over)))

    return log_in
