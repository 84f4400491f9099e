"""Failures of helm, as a few errors of ours. `str()` is a sentence for people that begins with what is useful.

helm's own words are wrapped again and again (`Error: UPGRADE FAILED: template: a/templates/b.yaml:3:5: executing … at
<…>: error calling include: …`); the message of the chart's author or the API server comes last, and is what helps.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import takewhile

from clusters.kube.responses import is_starting
from components.values.secrets import masked_text

MASK = "••••"
SHORT = 600
"""Characters of a sentence: fits a step's row and a page."""
_WORTH_HIDING = 4
"""A secret of three characters would blacken every text and is no secret."""


class HelmError(Exception):
    """Base. `is_final`: trying again as it is cannot help."""

    is_final = True


class HelmMissing(HelmError):
    """The program is not there, cannot run, or is older than what is supported."""


class HelmRefused(HelmError):
    """The chart, its values or the API server said no."""


class UnknownKind(HelmRefused):
    """The cluster does not know the kind of an object, before the chart's own definitions are there."""


class UnreadableObject(HelmRefused):
    """An object of the chart that the asking identity may not read: helm v4 reads each when it tries a release out."""


class HelmTimeout(HelmError):
    """A run that was not done at the deadline; its process group was ended."""

    is_final = False


class Stopped(HelmError):
    """A run that ended because an operator asked to stop it."""

    is_final = False


class ReleaseBusy(HelmError):
    """The release is pending-install, pending-upgrade or pending-rollback: another helm works on it, or was killed."""

    is_final = False


class HelmUnavailable(HelmError):
    """The API server did not answer, or helm was killed by something else."""

    is_final = False


class HelmWaits(HelmError):
    """helm has done its part, or must not begin, until something in the cluster is as it should be."""

    is_final = False


class HelmUnauthorized(HelmUnavailable):
    """The API server refuses the credentials, or its certificate is not accepted: a person replaces them."""


class NoRelease(HelmError):
    """There is no such release, or not that revision of it."""


# In lower case, as they are compared: releases of helm and of client-go differ in it.
_BUSY = (
    "another operation (install/upgrade/rollback) is in progress",
    "has pending operation",
    "cannot reuse a name that is still in use",  # a helm that was killed: its last write arrived after we had looked
)
_UNAVAILABLE = (
    "kubernetes cluster unreachable",
    "connection refused",
    "failed to download openapi",  # as an API server answers that is just starting
    "connection reset",
    "i/o timeout",
    "tls handshake timeout",
    "context deadline exceeded",
    "unexpected eof",
    '": eof',  # of a request: the server went away before it answered
    "broken pipe",
    "server is currently unable",
    "http2: ",
    "etcdserver: ",
    "too many requests",
    "the server was unable to return a response",
    "has prevented the request from succeeding",  # a 5xx without a Status, as of a load balancer
    "internal error occurred: ",
    "no endpoints available for service",
    "the object has been modified",
    "not ready. status: unknown",  # helm v4's watch of a hook or object broke; one that is not ready has another status
)
_UNANSWERED = re.compile(r'\b(?:Get|Post|Put|Patch|Delete|Head) "https?://[^"]*": ')
"""Before what Go's client says of a request without an answer: charts come from files, so it was the API server's."""
_UNSERVED = re.compile(r'unable to recognize "[^"]*": unknown$')
"""Of any error status when Go's client asks what is served, whose Status it does not read there: in practice an API
server that was started a moment ago and forbids everything."""
_UNAUTHORIZED = (
    "the server has asked for the client to provide credentials",
    "you must be logged in to the server",
)
_UNAUTHORIZED_EACH = re.compile(r"(?:^|: |\* )Unauthorized(?=$|\s)")
"""By itself, behind what was tried, or once for each of the objects that were tried at once."""
_WEBHOOK = "failed calling webhook"
"""Behind it are the words of a webhook, whose certificate and refusals are not the API server's."""
_MISSING = ("release: not found", "release has no ", "has no deployed releases")
_UNKNOWN_KIND = "no matches for kind"
_UNREADABLE = re.compile(r"could not get information about the resource .* is forbidden: ")
_UNTRUSTED = "certificate signed by unknown authority", "tls: failed to verify", "x509: "
_PREFIX = re.compile(r"^(?:Error: )?(?:(?:INSTALLATION|UPGRADE|ROLLBACK|UNINSTALL) FAILED: )?")
_EXECUTION = re.compile(r"execution error at \((?P<where>[^)]+)\): (?P<said>.*)", re.DOTALL)
_TEMPLATE = re.compile(r"template: (?P<where>[^\s:]+:\d+(?::\d+)?): (?P<rest>.*)", re.DOTALL)
_PARSE = re.compile(r"parse error at \((?P<where>[^)]+)\): (?P<said>.*)", re.DOTALL)
_ADVICE = "Use --debug flag to render out invalid YAML"
_DEBUG = re.compile(r"^.{0,120}?\[debug\] ?|^(?:time=\S+ )?level=DEBUG (?:source=\S+ )?")
_NOISE = ("WARNING: Kubernetes configuration file", "level=DEBUG", "helm.go:", "level=INFO", "level=WARN")


def translated(stderr: str, status: int, secrets: Iterable[str] = ()) -> HelmError:
    """Return the error that fits helm's output and exit status. Masks the secrets in any output."""
    message = _message(masked(stderr, secrets))
    lower = message.lower()
    if any(words in lower for words in _BUSY):
        return ReleaseBusy(f"another helm works on the release, or was killed at it: {_short(message)}")
    if any(words in lower for words in _MISSING):
        return NoRelease(_short(message))
    if _WEBHOOK not in lower:
        if any(words in lower for words in _UNTRUSTED):
            return HelmUnauthorized(f"the API server's certificate is not accepted: {_short(message)}")
        if any(words in lower for words in _UNAUTHORIZED) or _UNAUTHORIZED_EACH.search(message):
            return HelmUnauthorized(f"the credentials are not accepted: {_short(message)}")
    is_cut_off = _UNANSWERED.search(message) or _UNSERVED.search(message)
    if is_starting(message) or is_cut_off or any(words in lower for words in _UNAVAILABLE):
        return HelmUnavailable(f"the API server did not carry it out: {_short(message)}")
    is_charts = any(words.search(message) for words in (_EXECUTION, _PARSE, _TEMPLATE))
    if _UNKNOWN_KIND in lower and not is_charts:
        return UnknownKind(_short(_useful(message)))
    if _UNREADABLE.search(lower) and not is_charts:
        return UnreadableObject(_short(_useful(message)))
    if not message:
        words = f"was ended by signal {-status}" if status < 0 else f"failed with status {status}"
        return HelmUnavailable(f"helm {words} and said nothing")
    return HelmRefused(_short(_useful(message)))


def masked(text: str, secrets: Iterable[str]) -> str:
    """Return the text without the secrets, however they are written."""
    return masked_text(text, (secret for secret in secrets if len(secret) >= _WORTH_HIDING), MASK)


def spoken(line: str, secrets: Sequence[str]) -> str:
    """One line of helm's live output, fit for a page; empty when it says nothing."""
    return _short(_DEBUG.sub("", masked(line, secrets)).strip())


def _message(stderr: str) -> str:
    """Return the text behind helm's last `Error:`, else all of it, without debugging lines."""
    at = max(stderr.rfind("\nError: "), 0 if stderr.startswith("Error: ") else -1)
    lines = stderr[max(at, 0) :].strip().splitlines()
    if at >= 0:  # behind it `--debug` says the same once more, and where in helm's own code
        lines = list(takewhile(lambda line: "[debug]" not in line, lines))
    kept = [line for line in lines if line.strip() and not line.startswith(_NOISE) and "[debug]" not in line]
    return _PREFIX.sub("", "\n".join(kept).replace(_ADVICE, "").strip(), count=1)


def _useful(message: str) -> str:
    """The last words of a template's error first, and their place behind them."""
    if match := _EXECUTION.search(message) or _PARSE.search(message):
        return f"{match['said'].strip()} ({match['where']})"
    match = _TEMPLATE.search(message)
    if not match:
        return message
    where, rest = match["where"], match["rest"]
    while inner := _TEMPLATE.search(rest):
        where, rest = inner["where"], inner["rest"]
    words = rest.rpartition("error calling ")[2] if "error calling " in rest else rest.rpartition(">: ")[2] or rest
    return f"{words.strip()} ({where})"


def _short(text: str, limit: int = SHORT) -> str:
    """Printable, one line, bounded."""
    line = " ".join(text.split())
    printable = "".join(c if c.isprintable() else " " for c in line[: limit + 1])
    return printable if len(printable) <= limit else printable[: limit - 1] + "…"
