"""Laws of conditions: typed and named before they are stored, bounded when they run, and refusing without an answer."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from common.errors import Invalid
from jobs.policy import conditions, fact_types, policy_text
from jobs.policy.conditions import STEPS, BadCondition, Budget, ConditionFailed

FACTS: dict[str, Any] = {
    "plan": {
        "nodes": 3, "risk": fact_types.CLASSES["REBOOT"], "environment": "production", "gpu_hours": 2.5,
        "namespaces": [f"team-{number}" for number in range(5000)], "pool": "a" * 100_000 + "!",
        "components": [{"name": "gpu-operator", "risk": fact_types.CLASSES["DRAIN"]}], "weakens_security": False,
    },
    "judged": {"hour": 23, "minute": 0, "weekday": 5, "date": "2026-11-27"},
}  # fmt: skip
CONTEXT = conditions.context_of(FACTS)


def judged(source: str) -> bool:
    return conditions.holds(conditions.compiled(source), CONTEXT, Budget())


@pytest.mark.parametrize(
    ("source", "answer"),
    [
        ('plan.environment == "production" && plan.risk >= REBOOT', True),
        ("plan.risk < DRAIN", False),
        ("judged.weekday >= 5 && (judged.hour >= 22 || judged.hour < 6)", True),
        ('plan.components.exists(c, c.name == "gpu-operator" && c.risk >= DRAIN)', True),
        ('plan.components.filter(c, c.name.startsWith("gpu")).size() == 1', True),
        ("double(plan.nodes) > 2.5 && plan.nodes in [1, 3]", True),
        ('plan.environment.matches("^prod")', True),
        # CEL's own logic of what is unknown: plan.gpu_jobs is absent.
        ("false && plan.gpu_jobs > 3", False),
        ("plan.gpu_jobs > 3 || true", True),
    ],
)
def test_a_condition_answers_as_cel_does(source: str, answer: bool) -> None:
    assert judged(source) is answer


@pytest.mark.parametrize(
    ("source", "line", "part"),
    [
        ("plan.nodez > 3", 1, "nodez"),
        ("fleet.nodes > 3", 1, "fleet"),
        ("plan.nodes > 1 &&\n  plan.gpus_out > 0.5", 2, "int and double"),
        ('plan.risk == "reboot"', 1, "REBOOT, without quotes"),
        ("plan.nodes", 1, "int"),
        ("plan.nodes > 1 ||\n ", 1, "Syntax"),
        ('plan.pool.matches("(")', 1, "RE2"),
        ("plan.pool.matches(plan.environment)", 1, "in quotes"),
        ("plan.namespaces.exists(plan, true)", 1, "new name"),
        ("", 1, "Syntax"),
    ],
)
def test_a_wrong_condition_is_refused_with_its_place(source: str, line: int, part: str) -> None:
    with pytest.raises(BadCondition) as refusal:
        conditions.compiled(source)
    assert part in refusal.value.reason
    assert refusal.value.line == line
    assert refusal.value.column >= 1


@pytest.mark.parametrize(
    "source",
    [
        '["x"].map(x, x + x).map(x, x + x) == ["x"]', 'plan.pool + plan.pool == "x"', "[1] + [1] == [1]", "{} == {}",
        "has(plan.nodes)", "dyn(1) == 1", "type(1) == int", 'plan.namespaces[0] == "x"', "plan.namespaces.min() == 1",
        "plan.namespaces.reduce(a, b, 0, a) == 0", ".plan.nodes > 1", "null == null", 'b"x" == b"x"', "1u == 1u",
        'timestamp("x") == timestamp("x")', "plan == plan", "plan.components == plan.components", "plan{} == plan",
        "(" * 500 + "true" + ")" * 500, "!" * 1500 + "true", "||".join(["true"] * 300), "true" + " " * 5000,
        "[[[true]]] == []", "99999999999999999999 > 1",
    ],
)  # fmt: skip
def test_what_could_grow_or_hide_its_type_is_refused_before_it_runs(source: str) -> None:
    with pytest.raises(BadCondition):
        conditions.compiled(source)


@pytest.mark.parametrize(
    "source",
    [
        "plan.namespaces.all(a, plan.namespaces.all(b, plan.namespaces.all(c, a != b || true)))",
        'plan.namespaces.filter(a, plan.namespaces.exists(b, b.matches("(a+)+$"))).size() > 0',
        "plan.gpu_jobs > 3",
        "!(plan.gpu_jobs > 3)",
        "1 / (plan.nodes - 3) > 0",
        "99999999999999999 * 99999999999999999 > 1",
        "-(9223372036854775 * 1000) * 1000 < 0",
    ],
)
def test_a_condition_without_an_answer_fails_within_its_budget(source: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    budget = Budget(STEPS // 10)
    with pytest.raises(ConditionFailed):
        conditions.holds(conditions.compiled(source), CONTEXT, budget)
    assert budget.left < STEPS // 10
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 * 1024  # KiB


def test_a_pattern_that_would_take_for_ever_to_backtrack_takes_none_of_it() -> None:
    assert judged('plan.pool.matches("^(a+)+$")') is False


PARTS = (
    "plan", ".", "nodes", "namespaces", "exists", "(", ")", "x", ",", "&&", "||", "!", "==", ">", "1", '"a"', "[", "]",
    "?", ":", "+", "size", "in", "judged", "hour", "1.5", "REBOOT", "-", "\n", "{", "}", "true",
)  # fmt: skip


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(PARTS), max_size=25))
def test_any_text_is_refused_or_answered(parts: list[str]) -> None:
    try:
        answer = judged(" ".join(parts))
    except (BadCondition, ConditionFailed):
        return
    assert isinstance(answer, bool)


# ── the text of a policy ──────────────────────────────────────────────────────────────────────────────────────────────


def policy(*rules: str) -> str:
    return "facts: 1\nzone: UTC\nrules:\n" + "".join(rules)


@pytest.mark.parametrize(
    ("text", "line", "part"),
    [
        (policy("- {name: a, when: 'plan.nodes > 3', allow: true}\n"), 4, "allow"),
        (policy("- {name: a, when: 'plan.nodes > 3'}\n"), 4, "either"),
        (policy("- {name: a, when: 'true', require: {approvers: 0}}\n"), 4, "approvers"),
        (policy("- {name: a, when: 'true', require: {approvers: -1}}\n"), 4, "approvers"),
        (policy("- {name: a, when: 'true', require: {of_role: approver}}\n"), 4, "of_count"),
        (policy("- {name: a, when: 'true', require: {fresh_login: false}}\n"), 4, "nothing"),
        (policy("- {name: a, when: 'true', require: {approvers: 1, of_role: king, of_count: 1}}\n"), 4, "of_role"),
        (policy("- {name: a, when: true, refuse: no way}\n"), 4, "CEL"),
        (policy("- name: a\n  when: |\n    true &&\n    plan.x > 3\n  refuse: No.\n"), 5, "line 2, column"),
        (policy(*["- {name: a, when: 'true', refuse: No.}\n"] * 2), 4, "another rule"),
        (policy(*[f"- {{name: a{n}, when: 'true', refuse: No.}}\n" for n in range(51)]), 3, "at most 50"),
        ("facts: 2\nzone: UTC\nrules: []\n", 1, "facts: 1"),
        ("facts: 1\nzone: ../etc/passwd\nrules: []\n", 2, "IANA"),
        ("rules: [", 1, "bracket"),
        ("&a [*a]", 1, ""),
        ("x" * 40_000, 1, ""),
        ("", 1, "keys"),
    ],
)
def test_a_wrong_policy_is_refused_with_rule_and_line(text: str, line: int, part: str) -> None:
    with pytest.raises(Invalid) as refusal:
        policy_text.read(text)
    errors = refusal.value.fields["text"]
    assert any(part in error and f"ine {line}:" in error for error in errors), errors


def test_the_documented_facts_are_those_of_the_code_and_the_documented_examples_compile() -> None:
    text = Path("docs/policy.md").read_text()
    rows = {
        tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in text.splitlines() if line[:2] == "| "
    }
    expected = {(f"`{name}`", kind, meaning) for name, kind, meaning in fact_types.documented()}
    assert {row for row in rows if row[0].startswith(("`plan.", "`judged."))} == expected
    examples = text.split("```yaml\n")[1:]
    assert examples
    for example in examples:
        assert policy_text.read(example.split("```")[0]).rules
