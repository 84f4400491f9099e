"""Rows that a form's field offers, where they depend on who asks."""

from __future__ import annotations

from typing import Any

from django import forms
from django.db.models import QuerySet


def offer(form: forms.Form, name: str, rows: QuerySet[Any]) -> None:
    """Let a field that chooses a row, or several, choose from these; another is refused as unknown."""
    field = form.fields[name]
    assert isinstance(field, forms.ModelChoiceField), name
    field.queryset = rows
