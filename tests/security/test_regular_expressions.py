"""No regular expression of the package takes more than linear time for a text of a provider.

The test finds every pattern in the source, and how it is applied, and derives near-misses from its parse tree: the
shortest text up to a repetition, many of what it repeats, and an end that does not match.
"""

from __future__ import annotations

import ast
import importlib
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any, Final

import pytest

import delta_sharing_client as ds

PACKAGE: Final = Path(ds.__file__).parent
METHODS: Final = ("match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer")
CALLS: Final = {f"re.{method}" for method in ("compile", *METHODS)}
#: Patterns that exist only while a function runs, and what applies them to a text; None if the user gives both.
DYNAMIC: Final[dict[str, Callable[[str], object] | None]] = {
    "frames/dataset.py f'(?<!\\\\w){re.escape(name)}(?!\\\\w)'": lambda text: re.search(
        rf"(?<!\w){text}(?!\w)", text
    ),
    "spark/option_parsers.py text": None,
}
#: Texts longer than this are not needed: a quadratic search of this one takes half a second.
LENGTHS: Final = (12, 18, 24, 30, 100, 1000, 10_000)
#: CPU time that a linear search of the longest text takes less than.
MOST: Final = 0.04


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).as_posix(), ast.parse(path.read_text("utf-8"))


@cache
def expressions() -> dict[str, tuple[re.Pattern[Any] | None, frozenset[str]]]:
    """The patterns by their place and source, and the methods that apply them."""
    found: dict[str, tuple[re.Pattern[Any] | None, frozenset[str]]] = {}
    used: dict[str, set[str]] = defaultdict(set)
    trees = list(modules())
    for _, tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and node.attr in METHODS:
                names = [part.id for part in ast.walk(node.value) if isinstance(part, ast.Name)]
                used[names[0] if names else ""].add(node.attr)
    for path, tree in trees:
        names = {
            id(call): target.id
            for statement in ast.walk(tree)
            if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is not None
            for target in (statement.targets if isinstance(statement, ast.Assign) else [statement.target])
            if isinstance(target, ast.Name)
            for call in ast.walk(statement.value)
        }
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or ast.unparse(node.func) not in {
                f"re.{m}" for m in ("compile", *METHODS)
            }:
                continue
            method = ast.unparse(node.func).removeprefix("re.")
            module = importlib.import_module(
                ".".join([ds.__name__, *path.removesuffix(".py").removesuffix("/__init__").split("/")])
            )
            flags = next((item.value for item in node.keywords if item.arg == "flags"), node.args[1:2] or None)
            scope = {**vars(module), "quote": "'"}  # a comprehension's variable
            methods = {method}
            if method == "compile":
                methods = used.get(names.get(id(node), ""), set()) or {"match", "fullmatch", "search"}
            flag = eval(ast.unparse(flags[0]), scope) if isinstance(flags, list) and method == "compile" else 0
            for argument in (
                [node.args[0].body, node.args[0].orelse] if isinstance(node.args[0], ast.IfExp) else node.args[:1]
            ):
                source = ast.unparse(argument)
                try:
                    pattern = re.compile(eval(source, scope), flag)
                except (NameError, TypeError):
                    pattern = None
                before = found.get(f"{path} {source}", (None, frozenset()))[1]
                found[f"{path} {source}"] = pattern, frozenset(methods) | before
    return found


def sample(tree: Any) -> str:
    """A short text that a parse tree matches."""
    text = ""
    for code, value in tree:
        if code is codes.LITERAL:
            text += chr(value)
        elif code is codes.NOT_LITERAL:
            text += "b" if value == ord("a") else "a"
        elif code is codes.ANY:
            text += "a"
        elif code is codes.IN:
            text += member(value)
        elif code is codes.BRANCH:
            text += sample(value[1][0])
        elif code is codes.SUBPATTERN:
            text += sample(value[3])
        elif code is codes.ATOMIC_GROUP:
            text += sample(value)
        elif code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
            text += sample(value[2]) * value[0]
    return text


def member(items: Any) -> str:
    """A character of a class."""
    kinds = {
        codes.CATEGORY_DIGIT: "1",
        codes.CATEGORY_SPACE: " ",
        codes.CATEGORY_WORD: "a",
        codes.CATEGORY_NOT_SPACE: "a",
        codes.CATEGORY_NOT_DIGIT: "a",
        codes.CATEGORY_NOT_WORD: "-",
    }
    if items[0][0] is codes.NEGATE:
        return next(c for c in "a1 .-" if not re.compile("").match(c) or not excluded(c, items[1:]))
    code, value = items[0]
    return chr(value) if code is codes.LITERAL else chr(value[0]) if code is codes.RANGE else kinds[value]


def excluded(character: str, items: Any) -> bool:
    for code, value in items:
        if code is codes.LITERAL and ord(character) == value:
            return True
        if code is codes.RANGE and value[0] <= ord(character) <= value[1]:
            return True
        if code is codes.CATEGORY and value is codes.CATEGORY_SPACE and character.isspace():
            return True
    return False


def repetitions(tree: Any, before: str = "") -> Iterator[tuple[str, str]]:
    """The repetitions of a parse tree: the text before each, and one that it repeats."""
    for index, (code, value) in enumerate(tree):
        start = before + sample(tree[:index])
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
            yield start, sample(value[2])
            yield from repetitions(value[2], start)
        elif code is codes.BRANCH:
            for branch in value[1]:
                yield from repetitions(branch, start)
        elif code is codes.SUBPATTERN:
            yield from repetitions(value[3], start)
        elif code is codes.ATOMIC_GROUP:
            yield from repetitions(value, start)


def near_misses(pattern: re.Pattern[Any]) -> list[tuple[str, str, str]]:
    """Beginnings, what follows them many times, and ends."""
    text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    tree = parser.parse(text, pattern.flags & ~re.UNICODE if isinstance(pattern.pattern, bytes) else pattern.flags)
    found = {
        ("", each, end) for each in (" ", "a", "1", "<", ".", "\n", "\\", '"', "'", "`") for end in ("", "\0")
    }
    pumps = [(start, body) for start, body in repetitions(tree) if body or start]
    for start, body in pumps:
        ends = ("", "\0", "\nx")
        found |= {(start, part, end) for part in {body, " "} if part for end in ends}
        found |= {("", start + part, end) for part in {body, ""} if start + part for end in ("", "\0")}
    # One repetition after another: where both match the same character, a search may try every split.
    found |= {(start, body + other, "\0") for start, body in pumps[:6] for _, other in pumps[:6] if body + other}
    whole = sample(tree)
    if whole:
        found |= {("", whole, "\0"), (whole, " ", "\nx"), (whole, " ", "x"), ("", whole[:-1] or whole, "")}
    return sorted(found)


def seconds(call: Callable[[], object]) -> float:
    """The CPU time of this thread, so that other processes do not count."""
    started = time.thread_time()
    call()
    return time.thread_time() - started


def check(apply: Callable[[str], object], start: str, body: str, end: str, subject: str) -> None:
    """Longer and longer texts, until one takes too long: then four times the text may take eight times as long."""
    for length in LENGTHS:
        text, longer = (start + body * (n // len(body) + 1) + end for n in (length, 4 * length))
        if any(seconds(lambda text=text: apply(text)) < MOST for _ in range(2)):
            continue
        quick = min(seconds(lambda text=text: apply(text)) for _ in range(2))
        slow = seconds(lambda longer=longer: apply(longer)) if quick < 1 else 1e9
        assert slow < 8 * quick, (
            f"{subject}: {start!r} + {body!r} * n + {end!r} takes {quick:.2f} s for n = {length}"
        )


@pytest.mark.parametrize("place", expressions())
def test_linear_time(place: str) -> None:
    pattern, methods = expressions()[place]
    if pattern is None:
        assert place in DYNAMIC, f"{place}: this pattern is not a constant; add to DYNAMIC what applies it"
        apply = DYNAMIC[place]
        if apply is not None:
            check(apply, "", "a", "\0", place)
            check(apply, "", "a ", "\0", place)
        return
    for method in sorted(methods):
        for start, body, end in near_misses(pattern):
            check(applied(pattern, method), start, body, end, f"{place} ({method})")


def applied(pattern: re.Pattern[Any], method: str) -> Callable[[str], object]:
    function = getattr(pattern, method)
    encode = (
        (lambda text: text) if isinstance(pattern.pattern, str) else lambda text: text.encode("latin-1", "replace")
    )
    if method in ("sub", "subn"):
        return lambda text: function("" if isinstance(pattern.pattern, str) else b"", encode(text))
    if method == "finditer":
        return lambda text: sum(1 for _ in function(encode(text)))
    return lambda text: function(encode(text))
