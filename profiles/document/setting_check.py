"""Checks of one setting: key, operator and value against the contract's lists and the catalog."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from contract import fitness, key_lists, keys, quantities
from contract.nodetuning import MAX_VALUE, Operator
from profiles.catalog import known_settings, weakening
from profiles.catalog.known_settings import SettingInfo, Shape


class SettingRefused(ValueError):
    """This key, operator or value cannot be asked for. `part`: empty for the key, else `operator` or `value`."""

    def __init__(self, message: str, *, code: str, part: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.part = part


@dataclass(frozen=True, slots=True)
class CheckedSetting:
    """One setting in its canonical form."""

    key: str
    operator: str
    value: str
    cautions: tuple[tuple[str, str], ...] = ()
    """(code, sentence): asked for, and permitted, but to be thought about."""


_OPERATOR = re.compile(r"(>=|<=|=)(.*)", re.DOTALL)
_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
_WITH_UNIT = re.compile(r"([0-9]{1,30})\s*([A-Za-z]{1,3})")
_BINARY: dict[str, int] = {unit: 1 << quantities.BINARY[unit] for unit in ("Ki", "Mi", "Gi", "Ti")}
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")


def key(text: str) -> str:
    """The canonical key, if any value of it may be set. Raises Refused."""
    try:
        name = keys.normalize(text)
    except keys.BadKey as error:
        code = "unknown-key" if "of no known kind" in str(error) else "bad-key"
        raise SettingRefused(_with_suggestion(str(error), text), code=code) from error
    if keys.is_allowed(name):
        return name
    reason = keys.denied_reason(name, "")
    if name in key_lists.ALLOWED or reason is None or "not on the list" not in reason:
        raise SettingRefused(f"{name} cannot be set: {reason}", code="denied")
    raise SettingRefused(_with_suggestion(f"{name} is not a known setting", name), code="unknown-key")


def _with_suggestion(message: str, text: str) -> str:
    near = known_settings.nearest(text[:128])
    return f"{message}; did you mean {near}?" if near else message


def ask(name: str, raw: Any, operator: Any = None) -> CheckedSetting:
    """One setting, `name` being canonical already; `raw` is what YAML or JSON held. Raises Refused."""
    info = known_settings.get(name)
    if info is None:
        raise SettingRefused(f"{name} is not in the catalog", code="unknown-key")
    inline, bare = _split(raw)
    if operator is not None and inline is not None:
        raise SettingRefused(
            "the operator is given twice, in operator and in value", code="bad-operator", part="operator"
        )
    chosen = inline if operator is None else operator
    chosen = Operator.EQUALS if chosen is None else chosen
    if not isinstance(chosen, str) or chosen not in tuple(Operator):
        raise SettingRefused("an operator is =, >= or <=", code="bad-operator", part="operator")
    if chosen not in info.operators:
        why = "the kubelet insists on one value" if info.owner == "kubelet" else "its values have no order"
        raise SettingRefused(f"{name} can only be asked for with =: {why}", code="bad-operator", part="operator")
    value = _canonical(info, bare)
    _judge(info, chosen, value)
    return CheckedSetting(name, str(Operator(chosen)), value, tuple(_cautions(info, chosen, value)))


def _split(raw: Any) -> tuple[str | None, Any]:
    """`">= 262144"` holds its operator; anything else does not."""
    if isinstance(raw, str) and (match := _OPERATOR.fullmatch(raw.lstrip(" "))):
        return match[1], match[2].strip(" ")
    return None, raw


def _refuse(message: str, code: str = "bad-value") -> SettingRefused:
    return SettingRefused(message, code=code, part="value")


def _canonical(info: SettingInfo, raw: Any) -> str:
    """The value as the kernel is told. Raises Refused."""
    if raw is None or raw in ("", []):
        raise _refuse("has no value; to give up an inherited setting, name it under remove")
    if isinstance(raw, bool) and "true" in info.choices:
        return str(raw).lower()
    if isinstance(raw, bool):
        raise _refuse(f"true and false are no values here; write {info.range_text or '0 or 1'}")
    if isinstance(raw, list):
        if info.shape is not Shape.INTS:
            raise _refuse("takes one value, not a list")
        if not all(isinstance(item, int | str) and not isinstance(item, bool) for item in raw):
            raise _refuse(f"must be {info.count} whole numbers")
        raw = " ".join(str(item) for item in raw)
    if isinstance(raw, float):
        raise _refuse(
            f"{raw} is not a whole number" if info.is_number else "put it in quotes: YAML reads it as a number"
        )
    if not isinstance(raw, str | int):
        raise _refuse("must be a number or text")
    text = str(raw)
    if len(text) > MAX_VALUE:
        raise _refuse(f"is longer than {MAX_VALUE} characters")
    if match := _CONTROL.search(text.replace("\t", " ")):
        shown = "a line break" if match[0] in "\n\r\u2028\u2029\x85" else f"the character {match[0]!a}"
        raise _refuse(f"contains {shown}")
    text = keys.canonical_value(text)
    if info.shape is Shape.INT:
        return str(_number(info, text))
    if info.shape is Shape.INTS:
        return _numbers(info, text)
    return text


def _numbers(info: SettingInfo, text: str) -> str:
    numbers = [_number(info, part) for part in text.split()]
    if len(numbers) != info.count:
        raise _refuse(f"must be {info.count} numbers ({info.unit}), not {len(numbers)}")
    if info.is_ascending and numbers != sorted(numbers):
        raise _refuse("its numbers must not fall")
    return " ".join(map(str, numbers))


def _number(info: SettingInfo, text: str) -> int:
    if _WHOLE.fullmatch(text):
        return int(text)
    if match := _WITH_UNIT.fullmatch(text):
        amount, suffix = int(match[1]), match[2]
        if info.unit == "bytes" and suffix in _BINARY:
            return amount * _BINARY[suffix]
        raise _refuse(_unit_complaint(info, text, amount, suffix), code="wrong-unit")
    raise _refuse(f"{text[:40]!r} is not a whole number" + (f" of {info.unit}" if info.unit else ""))


def _unit_complaint(info: SettingInfo, text: str, amount: int, suffix: str) -> str:
    if info.unit == "bytes":
        return f"{text!r}: a number of bytes may end in Ki, Mi, Gi or Ti, and in nothing else"
    if info.unit == "KiB" and suffix in _BINARY:
        return f"is counted in KiB: write {amount * _BINARY[suffix] // 1024} instead of {text}"
    return f"is {f'counted in {info.unit}' if info.unit else 'a plain number'}: write it without {suffix!r}"


def _judge(info: SettingInfo, operator: str, value: str) -> None:
    """Range, choices, deny-list, and whether a file on the node could hold it. Raises Refused."""
    if reason := keys.denied_reason(info.key, value):
        raise SettingRefused(f"{info.key} cannot be set to {value}: {reason}", code="denied", part="value")
    if info.shape is Shape.CHOICE and value not in info.choices:
        raise _refuse(f"{value[:40]!r} is not one of {info.range_text}", code="out-of-range")
    if info.is_number and info.minimum is not None and info.maximum is not None:
        for number in map(int, value.split()):
            if not info.minimum <= number <= info.maximum:
                raise _refuse(f"{number} is out of range: {info.range_text} {info.unit}".rstrip(), code="out-of-range")
    if why := fitness.unfit(info.key, operator, value, fitness.MachineSize()):
        raise _refuse(f"would leave a node unusable: {why}", code="out-of-range")
    try:
        keys.check_value(info.key, value)
    except keys.BadValue as error:
        raise _refuse(str(error).removeprefix(f"{info.key}: ")) from error


def _cautions(info: SettingInfo, operator: str, value: str) -> list[tuple[str, str]]:
    out: list[tuple[str, str]] = []
    if why := weakening.reason(info.key, operator, value):
        out.append((weakening.CODE, f"weakens the node's security: {why}"))
    if info.caution:
        out.append(("caution", info.caution))
    options = {option.partition("=")[0] for option in value.split(",")}  # `pci=realloc=off,disable_acs_redir=pci:0:0`
    out += [("caution", why) for word, why in info.caution_values.items() if word == value or word in options]
    if info.owner == "kubelet":
        out.append(("kubelet-owned", "the kubelet sets this value itself; asking for it as well only guards it"))
    if info.owner == "cni" and not info.caution:
        out.append(("cni-owned", "a network plugin may write it again"))
    if info.shape is Shape.WORD and info.choices and value not in info.choices:
        out.append(("unusual", f"{value} is not among the values known here: {info.range_text}"))
    if info.is_number:
        out += [
            ("platform", f"{limit.platform} accepts {limit.minimum} to {limit.maximum}; its own node pools refuse {n}")
            for limit in info.platforms
            for n in map(int, value.split())
            if not limit.permits(n)
        ]
    if info.raise_only and operator == Operator.EQUALS:
        out.append(("raise-only", "= may lower a node that already has more; >= only raises"))
    return out
