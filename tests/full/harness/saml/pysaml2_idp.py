"""pysaml2's identity provider behind a small log-in page: a program of its own, which knows the people of a file.

Its XML and its signatures are those of pysaml2 and of xmlsec1, in which no line is ours.
"""

from __future__ import annotations

import json
import sys
import time
from html import escape
from http.cookies import SimpleCookie
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs
from wsgiref.simple_server import WSGIRequestHandler, make_server

from saml2 import BINDING_HTTP_POST, BINDING_HTTP_REDIRECT, samlp
from saml2.config import IdPConfig
from saml2.saml import NAME_FORMAT_BASIC, NAMEID_FORMAT_PERSISTENT
from saml2.server import Server
from saml2.xmldsig import DIGEST_SHA256, SIG_RSA_SHA256

PASSWORD = "urn:oasis:names:tc:SAML:2.0:ac:classes:PasswordProtectedTransport"
given: dict[str, Any] = json.loads(sys.argv[1])
BASE = f"http://127.0.0.1:{given['port']}"


def server() -> Server:
    config = IdPConfig()
    config.load({
        "entityid": f"{BASE}/metadata",
        "service": {
            "idp": {
                "endpoints": {"single_sign_on_service": [(f"{BASE}/sso", BINDING_HTTP_REDIRECT)]},
                "policy": {"default": {"lifetime": {"minutes": 5}, "name_form": NAME_FORMAT_BASIC}},
                "name_id_format": [NAMEID_FORMAT_PERSISTENT],
            }
        },
        "key_file": given["key"],
        "cert_file": given["certificate"],
        "metadata": {"local": [given["metadata"]]},
        "xmlsec_binary": given["xmlsec1"],
    })  # fmt: skip
    return Server(config=config)


IDP = server()


def people() -> dict[str, dict[str, list[str]]]:
    read: dict[str, dict[str, list[str]]] = json.loads(Path(given["people"]).read_text())
    return read


def page(query: dict[str, str]) -> str:
    hidden = "".join(f'<input type="hidden" name="{name}" value="{escape(value)}">' for name, value in query.items())
    buttons = "<button name='do' value='enter'>Sign-in</button><button name='do' value='cancel'>Cancel</button>"
    return f"<title>IdP</title><form method='post' action='/login'>{hidden}<input name='login'>{buttons}</form>"


def answered(query: dict[str, str], login: str, proved_at: int) -> str:
    """Return the page that posts the answer to the service: one of pysaml2's own, with its script."""
    request = IDP.parse_authn_request(query["SAMLRequest"], BINDING_HTTP_REDIRECT).message
    where = IDP.response_args(request)
    if login:
        response = IDP.create_authn_response(
            people()[login],
            userid=login,
            authn={"class_ref": PASSWORD, "authn_auth": BASE, "authn_instant": proved_at},
            sign_assertion=True,
            sign_response=given["signs_response"],
            **({} if given["signs_sha1"] else {"sign_alg": SIG_RSA_SHA256, "digest_alg": DIGEST_SHA256}),
            **where,
        )
    else:
        refusal = (samlp.STATUS_AUTHN_FAILED, "cancelled")
        response = IDP.create_error_response(where["in_response_to"], where["destination"], refusal, sign=False)
    made = IDP.apply_binding(BINDING_HTTP_POST, str(response), where["destination"], query["RelayState"], response=True)
    return str(made["data"])


def application(environ: dict[str, Any], start_response: Any) -> list[bytes]:
    sent = environ["QUERY_STRING"]
    if environ["REQUEST_METHOD"] == "POST":
        sent = environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])).decode()
    query = {name: values[0] for name, values in parse_qs(sent).items()}
    headers = [("Content-Type", "text/html; charset=utf-8")]
    cookie = SimpleCookie(environ.get("HTTP_COOKIE", "")).get("idp")
    if environ["PATH_INFO"] == "/login":
        login = query["login"] if query["do"] == "enter" else ""
        at = int(time.time())
        if login:
            headers.append(("Set-Cookie", f"idp={login}.{at}; Path=/; HttpOnly"))
        body = answered(query, login, at)
    else:
        request = IDP.parse_authn_request(query["SAMLRequest"], BINDING_HTTP_REDIRECT).message
        if cookie is not None and request.force_authn != "true":  # this browser is known
            login, _, since = cookie.value.partition(".")
            body = answered(query, login, int(since))
        else:
            body = page(query)
    start_response("200 OK", headers)
    return [body.encode()]


class Quiet(WSGIRequestHandler):
    def log_message(self, *_: Any) -> None:
        pass


if __name__ == "__main__":
    with make_server("127.0.0.1", given["port"], application, handler_class=Quiet) as listening:
        print("ready", flush=True)
        listening.serve_forever()
