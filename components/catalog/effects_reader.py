"""The part `blast:` of a component's file, read strictly (components.catalog.effects)."""

from __future__ import annotations

import re

from components.catalog.effects import (
    ALL_NODES,
    CLASSES,
    GPU_NODES,
    ChangeEffect,
    ComponentEffects,
    Controller,
    WholeEffect,
)
from components.catalog.yaml_reader import YamlMapping

_NODES = re.compile(rf"|{ALL_NODES}|{GPU_NODES}|[A-Za-z0-9./_-]+=[A-Za-z0-9._-]*")
_AMOUNT = re.compile(r"[0-9]{1,4}|[0-9]{1,3}%")


def read(part: YamlMapping) -> ComponentEffects:
    """Raises BadCatalog."""
    controllers = {name: _controller(name, controller) for name, controller in part.named_parts("controllers").items()}
    effects = ComponentEffects(
        unknown=part.text("unknown", one_of=CLASSES),
        install=_whole(part.part("install")),
        remove=_whole(part.part("remove")),
        changes=tuple(_effect(change, tuple(controllers)) for change in part.parts("changes", at_least=1)),
        controllers=controllers,
    )
    part.done()
    return effects


def _whole(part: YamlMapping) -> WholeEffect:
    whole = WholeEffect(part.text("class", one_of=CLASSES), part.text("why"), _nodes(part))
    part.done()
    return whole


def _effect(part: YamlMapping, controllers: tuple[str, ...]) -> ChangeEffect:
    named = part.text("controller", "")
    if named and named not in controllers:
        raise part.bad(f"there is no controller {named!r}", "controller")
    effect = ChangeEffect(
        kind=part.text("kind"),
        worst=part.text("class", one_of=CLASSES),
        why=part.text("why"),
        names=part.texts("names"),
        paths=part.texts("paths"),
        nodes=_nodes(part),
        restarts=part.texts("restarts"),
        controller=named,
        at_once=part.text("at_once", ""),
        interrupts=part.flag("interrupts", default=False),
        unless=part.clauses("unless"),
    )
    part.done()
    return effect


def _controller(name: str, part: YamlMapping) -> Controller:
    unavailable = part.text("unavailable")
    if not _AMOUNT.fullmatch(unavailable):
        raise part.bad("must be a number or a share, such as 2 or 25%", "unavailable")
    parallel = part.text("parallel")
    if not parallel.isdecimal():
        raise part.bad("must be a number; 0 means no limit", "parallel")
    controller = Controller(
        name=name,
        label=part.text("label"),
        api_version=part.text("api_version"),
        kind=part.text("kind"),
        object=part.text("object"),
        at=part.text("at"),
        is_on=part.flag("is_on", default=True),
        parallel=int(parallel),
        unavailable=unavailable,
    )
    part.done()
    return controller


def _nodes(part: YamlMapping) -> str:
    text = part.text("nodes", "")
    if not _NODES.fullmatch(text):
        raise part.bad(f"must be {ALL_NODES}, {GPU_NODES} or a label such as a=b", "nodes")
    return text
