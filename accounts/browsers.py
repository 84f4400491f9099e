"""Readable browser names from the User-Agent header: "Firefox on Linux". Standard library only.

User-Agent is a guess at best and may be anything; it helps an owner to recognize a session and decides nothing.
"""

from __future__ import annotations

BROWSERS = (
    ("Edg", "Edge"),
    ("OPR/", "Opera"),
    ("Firefox/", "Firefox"),
    ("FxiOS/", "Firefox"),
    ("HeadlessChrome/", "Chrome without a window"),
    ("CriOS/", "Chrome"),
    ("Chromium/", "Chromium"),
    ("Chrome/", "Chrome"),
    ("Safari/", "Safari"),
    ("curl/", "curl"),
    ("python-", "a Python program"),
)
"""The order matters: nearly every browser also claims to be Chrome and Safari."""
SYSTEMS = (
    ("Android", "Android"),
    ("iPhone", "an iPhone"),
    ("iPad", "an iPad"),
    ("Windows", "Windows"),
    ("Macintosh", "a Mac"),
    ("CrOS", "ChromeOS"),
    ("Linux", "Linux"),
)
UNKNOWN = "Unknown browser"


def described(user_agent: str) -> str:
    browser = next((name for mark, name in BROWSERS if mark in user_agent), UNKNOWN)
    system = next((name for mark, name in SYSTEMS if mark in user_agent), "")
    return f"{browser} on {system}" if system else browser
