"""`helm test`: web answers through its Service, and its log-in page is there. Standard library only."""

import json
import sys
import time
import urllib.error
import urllib.request

PATIENCE_SECONDS = 120


def answer(address: str) -> str:
    """Return the body of a 200 answer; one that is late, as behind a Service whose pods just started, is waited for."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            with urllib.request.urlopen(address, timeout=10) as response:  # noqa: S310 - the Service's address
                return str(response.read().decode())
        except (OSError, urllib.error.URLError) as error:
            if time.monotonic() > until:
                sys.exit(f"{address}: {error}")
            time.sleep(2)


def main(base: str) -> None:
    state = json.loads(answer(f"{base}/readyz"))
    sys.stdout.write(f"{state}\n")
    if 'name="csrfmiddlewaretoken"' not in answer(f"{base}/login/"):
        sys.exit(f"{base}/login/ is not a log-in page")


if __name__ == "__main__":
    main(sys.argv[1])
