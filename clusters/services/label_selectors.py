"""Label selectors of pools: checked, written as kubectl writes them, and asked of the database.

`clusters.objects.selects` is what a selector means; `nodes` gives the same answer in SQL (a test compares the two).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from django.db.models import Q, QuerySet, TextField
from django.db.models.fields.json import KeyTextTransform
from django.db.models.functions import Cast

from clusters import objects
from clusters.models import Node
from common.errors import Invalid

MAX_REQUIREMENTS = 32
MAX_VALUES = 64
OPERATORS = ("In", "NotIn", "Exists", "DoesNotExist")

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_PREFIX = re.compile(r"[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?")
_TERM = re.compile(
    r"""\s*(?:
        (?P<absent>!)\s*(?P<absent_key>[^\s,=!()]+)
      | (?P<set_key>[^\s,=!()]+)\s+(?P<set>in|notin)\s*\((?P<values>[^()]*)\)
      | (?P<key>[^\s,=!()]+)\s*(?:(?P<op>==|=|!=)\s*(?P<value>[^\s,=!()]*))?
    )\s*(?:,|$)""",
    re.VERBOSE,
)


def check(selector: object, field: str = "selector") -> dict[str, Any]:
    """The selector in its canonical shape. Raises Invalid, naming the path; an empty one is refused."""
    if not isinstance(selector, Mapping):
        raise _invalid(field, "must be an object with matchLabels or matchExpressions")
    for name in selector:
        if name not in ("matchLabels", "matchExpressions"):
            raise _invalid(f"{field}.{name}", "is not known; there are matchLabels and matchExpressions")
    labels, expressions = selector.get("matchLabels") or {}, selector.get("matchExpressions") or []
    if not isinstance(labels, Mapping):
        raise _invalid(f"{field}.matchLabels", "must be an object of label and value")
    if not isinstance(expressions, list):
        raise _invalid(f"{field}.matchExpressions", "must be a list")
    if not labels and not expressions:
        raise _invalid(field, "is empty; name at least one label, for an empty selector would mean every node")
    if len(labels) + len(expressions) > MAX_REQUIREMENTS:
        raise _invalid(field, f"has more than {MAX_REQUIREMENTS} requirements")
    out: dict[str, Any] = {}
    if labels:
        out["matchLabels"] = {
            _key(key, f"{field}.matchLabels"): _value(value, f"{field}.matchLabels[{key}]")
            for key, value in labels.items()
        }
    if expressions:
        out["matchExpressions"] = [_expression(e, f"{field}.matchExpressions[{i}]") for i, e in enumerate(expressions)]
    return out


def parse(text: str, field: str = "selector") -> dict[str, Any]:
    """kubectl's form: `pool=train,zone in (a,b),gpu,!spot`. Raises Invalid."""
    labels: dict[str, str] = {}
    expressions: list[dict[str, Any]] = []
    position = 0
    while position < len(text) and text[position:].strip():
        match = _TERM.match(text, position)
        if not match:
            rest = text[position : position + 40].strip()
            raise _invalid(field, f"cannot be read at {rest!r}; write it as in `pool=train,zone in (a,b),gpu,!spot`")
        position = match.end()
        key = match["absent_key"] or match["set_key"] or match["key"]
        if match["absent"]:
            expressions.append({"key": key, "operator": "DoesNotExist"})
        elif match["set"]:
            values = [value.strip() for value in match["values"].split(",")]
            expressions.append({"key": key, "operator": "In" if match["set"] == "in" else "NotIn", "values": values})
        elif not match["op"]:
            expressions.append({"key": key, "operator": "Exists"})
        elif match["op"] == "!=":
            expressions.append({"key": key, "operator": "NotIn", "values": [match["value"]]})
        elif labels.setdefault(key, match["value"]) != match["value"]:
            raise _invalid(field, f"wants two values of {key}, which no node can have")
    return check({"matchLabels": labels, "matchExpressions": expressions}, field)


def text(selector: Mapping[str, Any]) -> str:
    """Format a selector as kubectl does; `parse` reads it back."""
    terms = [f"{key}={value}" for key, value in (selector.get("matchLabels") or {}).items()]
    for item in selector.get("matchExpressions") or ():
        key, values = item["key"], ",".join(item.get("values") or ())
        terms.append(
            {
                "In": f"{key} in ({values})",
                "NotIn": f"{key} notin ({values})",
                "Exists": key,
                "DoesNotExist": f"!{key}",
            }[item["operator"]]
        )
    return ",".join(terms)


def nodes(selector: Mapping[str, Any], among: QuerySet[Node]) -> QuerySet[Node]:
    """Those of `among` whose labels the selector matches."""
    required = [(key, "In", [value]) for key, value in (selector.get("matchLabels") or {}).items()]
    expressions = selector.get("matchExpressions") or ()
    required += [(item["key"], item["operator"], item.get("values") or []) for item in expressions]
    if any(_is_index(key) for key, *_ in required):
        labels = among.values_list("pk", "labels")
        return among.filter(pk__in=[pk for pk, own in labels if objects.selects(selector, own)])
    for number, (key, operator, values) in enumerate(required):
        name = f"label_{number}"
        # The cast makes it text for good: a key transform would compare JSON, and "train" is not JSON.
        among = among.alias(**{name: Cast(KeyTextTransform(key, "labels"), TextField())})
        if operator == "In":
            among = among.filter(**{f"{name}__in": values})
        elif operator == "NotIn":
            among = among.filter(Q(**{f"{name}__isnull": True}) | ~Q(**{f"{name}__in": values}))
        else:
            among = among.filter(**{f"{name}__isnull": operator == "DoesNotExist"})
    return among


def _is_index(key: str) -> bool:
    """Django's JSON paths would take such a key for a position in a list."""
    try:
        int(key)
    except ValueError:
        return False
    return True


def _expression(item: object, field: str) -> dict[str, Any]:
    if not isinstance(item, Mapping):
        raise _invalid(field, "must be an object with key, operator and values")
    if unknown := set(item) - {"key", "operator", "values"}:
        raise _invalid(f"{field}.{sorted(map(str, unknown))[0]}", "is not known; there are key, operator and values")
    key, operator, values = _key(item.get("key"), f"{field}.key"), item.get("operator"), item.get("values") or []
    if operator not in OPERATORS:
        raise _invalid(f"{field}.operator", f"must be one of {', '.join(OPERATORS)}")
    if not isinstance(values, list) or len(values) > MAX_VALUES:
        raise _invalid(f"{field}.values", f"must be a list of at most {MAX_VALUES}")
    if operator in ("Exists", "DoesNotExist"):
        if values:
            raise _invalid(f"{field}.values", f"must be empty for {operator}")
        return {"key": key, "operator": operator}
    if not values:
        raise _invalid(f"{field}.values", f"must not be empty for {operator}")
    return {
        "key": key,
        "operator": operator,
        "values": [_value(value, f"{field}.values[{number}]") for number, value in enumerate(values)],
    }


def _key(key: object, field: str) -> str:
    if isinstance(key, str):
        prefix, slash, name = key.rpartition("/")
        if _NAME.fullmatch(name) and (_PREFIX.fullmatch(prefix) if slash else True):
            return key
    raise _invalid(field, f"{str(key)[:80]!r} is not a label name such as `pool` or `nvidia.com/gpu.product`")


def _value(value: object, field: str) -> str:
    if isinstance(value, str) and (not value or _NAME.fullmatch(value)):
        return value
    raise _invalid(field, f"{str(value)[:80]!r} is not a label value: at most 63 letters, digits, '.', '_' and '-'")


def _invalid(field: str, reason: str) -> Invalid:
    return Invalid(f"{field} {reason}.", fields={field: [f"{reason[0].upper()}{reason[1:]}."]})
