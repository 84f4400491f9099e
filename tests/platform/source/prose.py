"""Extraction of prose, with its line numbers, from templates, documents, Python and JavaScript.

What is not prose (tags, code, names) becomes blank and keeps its line breaks, so that a match has its line in the file.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from typing import NamedTuple

import yaml

COMMENT = re.compile(r"\{#.*?#\}|\{% comment.*?endcomment %\}|<!--.*?-->", re.DOTALL)
SCRIPT = re.compile(r"<(script|style)\b.*?</\1>", re.DOTALL)
TEMPLATE_TAG = re.compile(r"\{%.*?%\}|\{\{.*?\}\}", re.DOTALL)
QUOTED = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'")
ELEMENT = re.compile(r"</?[a-zA-Z!](?:[^<>\"']|\"[^\"]*\"|'[^']*')*>")
ATTRIBUTE = re.compile(r"\b(?:title|aria-label|placeholder|alt|label|content|data-confirm)=(\"[^\"]*\"|'[^']*')")
FENCE = re.compile(r"^(?P<mark>```|~~~).*?^(?P=mark)", re.MULTILINE | re.DOTALL)
CODE = re.compile(r"`[^`\n]*`|\]\([^)\s]*\)|<https?://[^>]*>")
DIRECTIVE = re.compile(r"# *(noqa|type: ignore|fmt|pragma)\b[^—]*")
SCRIPT_COMMENT = re.compile(r"/\*.*?\*/|(?<![:\"'`])//[^\n]*", re.DOTALL)
FEW = 3
"""Spaces of the shortest sentence: fewer words are names, titles and values."""
SCRIPT_STRING = re.compile(r"\"[^\"\n]*\"|'[^'\n]*'|`[^`]*`")


class Passage(NamedTuple):
    """Prose that begins at a line of a file."""

    line: int
    text: str


def _blank(match: re.Match[str]) -> str:
    """Return as many line breaks as the match has, and a mark that no rule matches across."""
    return " ¦ " + "\n" * match[0].count("\n")


def _words_of_tag(match: re.Match[str]) -> str:
    """Keep the quoted arguments of a template tag that are prose: those with a space in them, or a capital before."""
    kept = [q[1:-1] for q in QUOTED.findall(match[0]) if " " in q or q[1:2].isupper()]
    return " ¦ " + " ¦ ".join(kept) + (" ¦ " if kept else "") + "\n" * match[0].count("\n")


def _words_of_element(match: re.Match[str]) -> str:
    """Keep the attributes of an element that a person reads or hears."""
    kept = [value[1:-1].replace("\n", " ") for value in ATTRIBUTE.findall(match[0])]
    return (" ¦ " + " ¦ ".join(kept) + " ¦ " if kept else "") + "\n" * match[0].count("\n")


def of_data(source: str) -> Iterator[Passage]:
    """Yield the sentences of a YAML file: its values of several words."""
    waiting = list(yaml.compose_all(source, Loader=yaml.SafeLoader))
    while waiting:
        node = waiting.pop()
        if isinstance(node, yaml.MappingNode):
            waiting += [value for _, value in node.value]
        elif isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif node.value.count(" ") >= FEW:
            yield Passage(node.start_mark.line + 1, node.value)


def of_template(source: str) -> Iterator[Passage]:
    """Yield a template's text and its readable attributes, line by line."""
    for pattern in (COMMENT, SCRIPT):
        source = pattern.sub(_blank, source)
    source = TEMPLATE_TAG.sub(_words_of_tag, source)
    source = ELEMENT.sub(_words_of_element, source)
    for number, line in enumerate(source.split("\n"), start=1):
        if words := re.sub(r"[\s¦]*¦[\s¦]*", " ¦ ", line).strip(" ¦\t"):
            yield Passage(number, words)


def of_document(source: str) -> Iterator[Passage]:
    """Yield a document's paragraphs, without code, links' targets and addresses."""
    source = CODE.sub(_blank, FENCE.sub(_blank, source))
    number = 1
    for block in re.split(r"(\n\s*\n)", source):
        if words := block.strip():
            lead = len(block) - len(block.lstrip())
            yield Passage(number + block[:lead].count("\n"), words)
        number += block.count("\n")


def _docstrings(tree: ast.AST) -> set[int]:
    """Return the ids of constants that stand alone as a statement: docstrings, and notes below a name."""
    return {
        id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def of_python(source: str, *, docstrings: bool = False) -> Iterator[Passage]:
    """Yield the string literals that have a space in them; docstrings instead where asked for."""
    tree = ast.parse(source)
    alone = _docstrings(tree)
    parts: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts |= {id(value) for value in node.values}
            text = "".join(
                value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else " ¦ "
                for value in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            text = node.value
        else:
            continue
        if " " in text.strip() and (id(node) in alone) is docstrings:
            yield Passage(node.lineno, text)


def of_docstrings(source: str) -> Iterator[Passage]:
    """Yield docstrings as a whole, and the notes below names, without code in backquotes."""
    return (Passage(line, CODE.sub(_blank, text)) for line, text in of_python(source, docstrings=True))


def of_comments(source: str) -> Iterator[Passage]:
    """Yield comments without code in backquotes: those of lines in a row as one, and of a directive its reason."""
    line, lines = 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        alone, text = not token.line[: token.start[1]].strip(), DIRECTIVE.sub("", token.string).strip("# ")
        if lines and not (alone and token.start[0] == line + len(lines)):
            yield Passage(line, CODE.sub(_blank, "\n".join(lines)))
            lines = []
        line = line if lines else token.start[0]
        lines.append(text)
    if lines:
        yield Passage(line, CODE.sub(_blank, "\n".join(lines)))


def of_script(source: str) -> Iterator[Passage]:
    """Yield the string literals of JavaScript that have a space in them."""
    source = SCRIPT_COMMENT.sub(_blank, source)
    for match in SCRIPT_STRING.finditer(source):
        if " " in match[0]:
            yield Passage(source.count("\n", 0, match.start()) + 1, match[0][1:-1])
