"""Names under which passwords, tokens and keys are written in plain text."""

from __future__ import annotations

import re
from typing import Any

_SECRET_KEY = re.compile(
    r"(^|[_-])(pass|pwd)$|passwd$|password$|passphrase$|(^|[_-]|[a-z])(token|apiKey|api_key|secretKey|secret_key"
    r"|privateKey|private_key|accessKey|access_key|clientSecret|client_secret)$|^(token|apikey|secretkey)$",
    re.IGNORECASE,
)


def looks_secret(key: str, value: Any) -> bool:
    """A plain text under a name such as adminPassword. `passwordKey` and `secretName` name something, and hold none."""
    return isinstance(value, str) and bool(value) and bool(_SECRET_KEY.search(key))
