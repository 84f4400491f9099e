"""Conditions: expressions of a subset of CEL, typed and named before they are stored, and run within a budget of steps.

The subset has no way to build a value that is larger than its input: no `map`, no `+` on strings or lists, no maps.
What is left is bounded by the number of steps (ADR 27).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import lark
from celpy import celtypes
from celpy.adapter import json_to_cel
from celpy.celparser import CELParseError, CELParser
from celpy.evaluation import Activation, CELEvalError, Evaluator, base_functions, function_matches

from jobs.policy.fact_types import BOOL, CLASS, CLASSES, DOUBLE, INT, ROOTS, STRING, FactType, list_of

MOST_CHARACTERS = 2000
MOST_DEPTH = 100
"""Levels of the syntax tree; a pair of parentheses costs 13, and celpy calls itself about four times a level."""
MOST_PATTERN = 200
STEPS = 100_000
"""Of all rules for one plan: at most about 2 s of one core, and some thousand elements of a list."""
STEPS_OF_A_BINDING = 30
"""Setting the variable of a macro costs about as much as so many visits."""

Scope = Mapping[str, FactType]


class BadCondition(Exception):
    """A condition that is not accepted. `line` and `column` count from 1, within the condition."""

    def __init__(self, reason: str, line: int = 1, column: int = 1) -> None:
        super().__init__(reason)
        self.reason, self.line, self.column = reason, line, column

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}: {self.reason}"


class ConditionFailed(Exception):
    """A condition had no answer: a fact is unknown, a division by zero, or too many steps. It counts as refusing."""


@dataclass(frozen=True, slots=True)
class Condition:
    source: str
    tree: lark.Tree[Any]
    names: frozenset[str]
    """Facts that it names: `plan.risk`, `judged.hour`."""

    @property
    def asks_the_clock(self) -> bool:
        return any(name.startswith("judged.") for name in self.names)


def compiled(source: str) -> Condition:
    """Parse and check. Raises BadCondition with the place of the first error."""
    if len(source) > MOST_CHARACTERS:
        raise BadCondition(f"It has {len(source)} characters, of at most {MOST_CHARACTERS}.")
    try:
        tree = CELParser().parse(source)
    except CELParseError as error:
        raise BadCondition("Syntax error.", error.line or 1, error.column or 1) from error
    except (ValueError, RecursionError, lark.exceptions.LarkError) as error:
        raise BadCondition("Syntax error.") from error
    if _depth(tree) > MOST_DEPTH:
        raise BadCondition("It is nested too deeply. Split it into several rules.")
    checker = _Checker()
    result = checker.type_of(tree, ROOTS)
    if result != BOOL:
        raise _wrong(tree, f"A condition is true or false; this is of the type {result}.")
    return Condition(source, tree, frozenset(checker.names))


class Budget:
    """Steps that are left, of all conditions that share it."""

    def __init__(self, steps: int = STEPS) -> None:
        self.left = steps

    def take(self, steps: int) -> None:
        self.left -= steps
        if self.left < 0:
            raise ConditionFailed("it takes too many steps")


def context_of(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return {"plan": …, "judged": …} as CEL's values, beside the classes. What is unknown is absent."""
    context: dict[str, Any] = {name: json_to_cel(value) for name, value in facts.items()}
    return context | {name: celtypes.IntType(rank) for name, rank in CLASSES.items()}


def holds(condition: Condition, context: Mapping[str, Any], budget: Budget) -> bool:
    """Return whether it holds. Raises ConditionFailed.

    CEL's own logic applies to what is absent: `false && unknown` is false, `true || unknown` is true.
    """
    runner = _BoundedEvaluator(condition.tree, Activation(functions=base_functions), budget)
    try:
        result = runner.evaluate(dict(context))
    except ConditionFailed:
        raise
    except CELEvalError as error:
        raise ConditionFailed(_reason(error)) from error
    except Exception as error:  # regardless of what the library raises, a rule that gave no answer refuses
        raise ConditionFailed(f"it could not be evaluated ({type(error).__name__})") from error
    if not isinstance(result, celtypes.BoolType):
        raise ConditionFailed("it has no answer of true or false")
    return bool(result)


def _reason(error: CELEvalError) -> str:
    text = str(error.args[0]) if error.args else ""
    if text.startswith("no such member in mapping"):
        return f"a fact is unknown: {text.partition(':')[2].strip()[:60]}"
    return text[:120] or "it could not be evaluated"


class _BoundedEvaluator(Evaluator):
    """celpy's evaluator that counts each node it visits; those of macros share the budget."""

    def __init__(self, tree: lark.Tree[Any], activation: Activation, budget: Budget) -> None:
        super().__init__(tree, activation)
        self.budget = budget

    def sub_evaluator(self, ast: lark.Tree[Any]) -> Evaluator:
        return _BoundedEvaluator(ast, self.activation, self.budget)

    def set_activation(self, values: Mapping[str, Any]) -> Evaluator:
        self.budget.take(STEPS_OF_A_BINDING)
        return super().set_activation(values)

    def visit(self, tree: lark.Tree[Any]) -> Any:
        self.budget.take(1)
        return super().visit(tree)

    def visit_children(self, tree: lark.Tree[Any]) -> list[Any]:
        self.budget.take(len(tree.children))
        return super().visit_children(tree)


# ── types and names ───────────────────────────────────────────────────────────────────────────────────────────────────


def _wrong(at: lark.Tree[Any] | lark.Token, reason: str) -> BadCondition:
    place = at if isinstance(at, lark.Token) else at.meta
    return BadCondition(reason, getattr(place, "line", 1) or 1, getattr(place, "column", 1) or 1)


def _parts(tree: lark.Tree[Any]) -> list[Any]:
    """Children of a node whose kind says which of them are trees and which tokens."""
    return list(tree.children)


def _depth(tree: lark.Tree[Any]) -> int:
    """Levels of the tree, without recursion: a hostile one has many."""
    deepest, level = 0, [tree]
    while level:
        deepest += 1
        level = [child for node in level for child in node.children if isinstance(child, lark.Tree)]
    return deepest


class _Checker:
    """Type of each part of an expression. Everything that it does not know is refused."""

    NUMBERS = (INT, DOUBLE)
    ORDERED = (INT, DOUBLE, STRING, CLASS)
    OF_STRINGS = ("startsWith", "endsWith", "contains", "matches")
    OF_LISTS = ("exists", "all", "exists_one", "filter")
    LITERALS: ClassVar[Mapping[str, FactType]] = {
        "INT_LIT": INT, "FLOAT_LIT": DOUBLE, "STRING_LIT": STRING, "MLSTRING_LIT": STRING, "BOOL_LIT": BOOL,
    }  # fmt: skip

    def __init__(self) -> None:
        self.names: set[str] = set()

    def type_of(self, tree: lark.Tree[Any], scope: Scope) -> FactType:
        if len(tree.children) == 1 and tree.data in _TRANSPARENT:
            return self.type_of(tree.children[0], scope)
        check = self._checks().get(tree.data)
        if check is None:
            raise _wrong(tree, "This part of CEL is not available in conditions.")
        return check(tree, scope)

    def _checks(self) -> dict[str, Callable[[lark.Tree[Any], Scope], FactType]]:
        return {
            "expr": self._choice, "conditionalor": self._logic, "conditionaland": self._logic,
            "relation": self._relation, "addition": self._arithmetic, "multiplication": self._arithmetic,
            "unary": self._unary, "member_dot": self._field, "member_dot_arg": self._method,
            "literal": self._literal, "ident": self._name, "ident_arg": self._function, "list_lit": self._list,
        }  # fmt: skip

    def _choice(self, tree: lark.Tree[Any], scope: Scope) -> FactType:
        condition, yes, no = (self.type_of(child, scope) for child in tree.children)
        if condition != BOOL or yes != no:
            raise _wrong(tree, f"`? :` needs true or false, and two values of one type; not {yes} and {no}.")
        return yes

    def _logic(self, tree: lark.Tree[Any], scope: Scope) -> FactType:
        for child in tree.children:
            if (kind := self.type_of(child, scope)) != BOOL:
                raise _wrong(child, f"`&&` and `||` join what is true or false; this is of the type {kind}.")
        return BOOL

    def _relation(self, tree: lark.Tree[Any], scope: Scope) -> FactType:
        operator, right_tree = _parts(tree)
        left, right = self.type_of(operator.children[0], scope), self.type_of(right_tree, scope)
        if operator.data == "relation_in":
            if right.kind != "list" or right.item != left or left not in (*self.ORDERED, BOOL):
                raise _wrong(tree, f"`in` needs a list of the type {left} on its right; this is of the type {right}.")
        elif left != right:
            raise _wrong(tree, f"The types {left} and {right} cannot be compared.{_hint(left, right)}")
        elif left not in (*self.ORDERED, BOOL):
            raise _wrong(tree, f"The type {left} cannot be compared.")
        elif left == BOOL and operator.data not in ("relation_eq", "relation_ne"):
            raise _wrong(tree, "True and false have no order.")
        return BOOL

    def _arithmetic(self, tree: lark.Tree[Any], scope: Scope) -> FactType:
        operator, right_tree = _parts(tree)
        left, right = self.type_of(operator.children[0], scope), self.type_of(right_tree, scope)
        if left != right or left not in self.NUMBERS:
            raise _wrong(tree, f"Arithmetic is of two numbers of one type, not {left} and {right}.{_hint(left, right)}")
        if operator.data == "multiplication_mod" and left != INT:
            raise _wrong(tree, "`%` is of whole numbers.")
        return left

    def _unary(self, tree: lark.Tree[Any], scope: Scope) -> FactType:
        operator, operand = _parts(tree)
        kind = self.type_of(operand, scope)
        if operator.data == "unary_not" and kind != BOOL:
            raise _wrong(tree, f"`!` is of what is true or false; this is of the type {kind}.")
        if operator.data == "unary_neg" and kind not in self.NUMBERS:
            raise _wrong(tree, f"`-` is of a number; this is of the type {kind}.")
        return kind

    def _field(self, tree: lark.Tree[Any], scope: Scope) -> FactType:
        owner, name = _parts(tree)
        kind = self.type_of(owner, scope)
        if name not in kind.fields:
            known = f" There are {', '.join(kind.fields)}." if kind.fields else ""
            raise _wrong(name, f"“{str(name)[:40]}” is not known of the type {kind}.{known}")
        if kind.kind in ("plan", "judged"):
            self.names.add(f"{kind.kind}.{name}")
        return kind.fields[name]

    def _method(self, tree: lark.Tree[Any], scope: Scope) -> FactType:
        owner, name, *rest = _parts(tree)
        kind, arguments = self.type_of(owner, scope), rest[0].children if rest else []
        if kind.item is not None and name in self.OF_LISTS and len(arguments) == 2:
            return self._macro(kind, str(name), arguments, scope)
        if kind.kind in ("list", "string") and name == "size" and not arguments:
            return INT
        if kind != STRING or name not in self.OF_STRINGS or len(arguments) != 1:
            methods = self.OF_STRINGS if kind == STRING else self.OF_LISTS if kind.item else ()
            known = f" There are {', '.join(methods)} and size." if methods else ""
            raise _wrong(name, f"“{str(name)[:40]}” cannot be called so on the type {kind}.{known}")
        if (given := self.type_of(arguments[0], scope)) != STRING:
            raise _wrong(arguments[0], f"`{name}` takes a string; this is of the type {given}.")
        if name == "matches":
            _check_pattern(arguments[0])
        return BOOL

    def _macro(self, kind: FactType, name: str, arguments: list[lark.Tree[Any]], scope: Scope) -> FactType:
        variable = _only_name(arguments[0])
        if variable is None or variable in scope:
            raise _wrong(arguments[0], f"`{name}` takes first a new name for each item of the list.")
        assert kind.item is not None
        if (each := self.type_of(arguments[1], {**scope, variable: kind.item})) != BOOL:
            raise _wrong(arguments[1], f"`{name}` takes a condition; this is of the type {each}.")
        return kind if name == "filter" else BOOL

    def _function(self, tree: lark.Tree[Any], scope: Scope) -> FactType:
        name, *rest = _parts(tree)
        given = [self.type_of(argument, scope) for argument in (rest[0].children if rest else [])]
        if name == "size" and len(given) == 1 and given[0].kind in ("list", "string"):
            return INT
        if name == "double" and given == [INT]:
            return DOUBLE
        raise _wrong(name, f"“{str(name)[:40]}” is no function of conditions. There are size(list) and double(int).")

    def _list(self, tree: lark.Tree[Any], scope: Scope) -> FactType:
        kinds = {self.type_of(child, scope) for child in (_parts(_parts(tree)[0]) if tree.children else [])}
        if len(kinds) != 1 or not kinds <= {*self.ORDERED, BOOL}:
            raise _wrong(tree, "A list has items of one type, and at least one: strings, numbers or classes.")
        return list_of(kinds.pop())

    def _literal(self, tree: lark.Tree[Any], scope: Scope) -> FactType:
        [token] = _parts(tree)
        if token.type not in self.LITERALS:
            raise _wrong(token, "Write a string, a number, true or false.")
        if token.type == "INT_LIT" and len(token) > 18:
            raise _wrong(token, "This number is too large.")
        return self.LITERALS[token.type]

    def _name(self, tree: lark.Tree[Any], scope: Scope) -> FactType:
        [name] = _parts(tree)
        if name not in scope:
            raise _wrong(name, f"“{str(name)[:40]}” is not known. There are {', '.join(scope)}.")
        return scope[name]


_TRANSPARENT = frozenset({
    "expr", "conditionalor", "conditionaland", "relation", "addition", "multiplication", "unary", "member", "primary",
    "paren_expr",
})  # fmt: skip
"""Levels of the grammar that mean nothing by themselves: with one child, they are that child."""


def _hint(left: FactType, right: FactType) -> str:
    if {left, right} == {INT, DOUBLE}:
        return " Write 15.0 for 15, or double(…)."
    return " Classes are written as REBOOT, without quotes." if {left, right} == {CLASS, STRING} else ""


def _leaf(tree: lark.Tree[Any]) -> lark.Tree[Any]:
    while tree.data in _TRANSPARENT and len(tree.children) == 1:
        tree = tree.children[0]
    return tree


def _only_name(tree: lark.Tree[Any]) -> str | None:
    leaf = _leaf(tree)
    return str(leaf.children[0]) if leaf.data == "ident" else None


def _check_pattern(argument: lark.Tree[Any]) -> None:
    """RE2 takes time in proportion to the text, for any pattern; the pattern is written out, so that it is checked."""
    leaf = _leaf(argument)
    if leaf.data != "literal" or len(str(leaf.children[0])) > MOST_PATTERN:
        raise _wrong(argument, f"`matches` takes a pattern in quotes, of at most {MOST_PATTERN} characters.")
    pattern = Evaluator(leaf, Activation()).visit(leaf)
    if isinstance(function_matches("", pattern), CELEvalError):
        raise _wrong(argument, "This is no regular expression that RE2 accepts.")
