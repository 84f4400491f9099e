"""The one line above the checks of a cluster that is to be connected."""

from __future__ import annotations

import pytest

from clusters.connection.preflight import Check, PreflightResult
from clusters.templatetags.clusters import agent_mode
from common import look

BAD = Check("Version", "bad", "Too old.")


@pytest.mark.parametrize(
    ("result", "is_fine", "headline"),
    [
        (PreflightResult("https://a", uid="1"), True, "https://a can be connected."),
        (PreflightResult("https://a", uid="1", checks=(BAD,)), False, "https://a cannot be connected yet."),
        (
            PreflightResult("https://a", uid="1", is_known=True, known_as="atlas", checks=(BAD,)),
            True,
            "https://a answers; it is connected as atlas.",
        ),
        (
            PreflightResult("https://a", uid="1", is_known=True, checks=(BAD, BAD)),
            False,
            "https://a answers; it is connected already.",
        ),
    ],
)
def test_a_verdict_says_first_whether_the_cluster_can_be_connected(
    result: PreflightResult, is_fine: bool, headline: str
) -> None:
    assert (result.is_fine, result.headline) == (is_fine, headline)


def test_every_state_of_a_check_has_its_look() -> None:
    assert set(look.PREFLIGHT) == {"bad", "ok", "warn", "unknown"}


@pytest.mark.parametrize(
    ("mode", "sentence"),
    [
        ("observe", "observe: changes nothing"),
        ("apply", "apply: reports drift"),
        ("enforce", "enforce: repairs drift"),
        ("later", "later"),
        ("", "–"),
    ],
)
def test_a_mode_says_what_the_agent_does_about_drift(mode: str, sentence: str) -> None:
    assert agent_mode(mode) == sentence
