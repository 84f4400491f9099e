"""Garbage collection in processes that last: those that answer requests, and workers.

Python looks for rings of garbage by walking every object there is, with the whole process standing still. Here nearly
all objects are code, models and routes that stay for good: walking them takes longer than most answers.
"""

from __future__ import annotations

import gc

WHILE_LOADING = 50_000
"""So many objects more than before, and the youngest are looked at, while a process loads the product: half a million
objects, nearly all of which last. With Python's own 700, looking took a fifth of the time of every start."""
NEW_OBJECTS = 5_000
"""So many objects more than before, and the youngest are looked at, for some milliseconds. Python's own 700 do so often
in one page; with ten times as many as these it is a pause that people notice."""
GENERATIONS = 10
"""Python's own: looks at the younger objects before older ones are looked at, too."""


def load() -> None:
    """Call it before anything is loaded. A command that ends soon may leave it at that."""
    gc.set_threshold(WHILE_LOADING, GENERATIONS, GENERATIONS)


def settle() -> None:
    """Call it when all is loaded: no later collection walks what there is now. Processes forked then share it, too."""
    from django.urls import get_resolver  # a part of what `load` has to come before

    _ = get_resolver().url_patterns  # else the first request would load every view
    freeze()


def freeze() -> None:
    """The same for a process that serves no views."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(NEW_OBJECTS, GENERATIONS, GENERATIONS)
