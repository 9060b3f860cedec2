"""docs/errors.md lists every error class, in the order of the tree, with its attributes."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

from test_errors import make

from delta_sharing_client import errors

ROOT = Path(__file__).resolve().parents[2]


def tree() -> dict[str, type[errors.DeltaSharingError]]:
    found = vars(errors).items()
    return {
        name: value
        for name, value in found
        if inspect.isclass(value) and issubclass(value, errors.DeltaSharingError)
    }


def listed() -> list[tuple[str, list[str]]]:
    """The first and the third column: the class with its marks, and its attributes."""
    lines = (ROOT / "docs" / "errors.md").read_text(encoding="utf-8").splitlines()
    table = [line for line in lines if line.startswith("|")][2:]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table]
    return [(row[0], re.findall(r"`(\w+)`", row[2])) for row in cells]


def name_of(cell: str) -> str:
    return re.findall(r"`(\w+)`", cell)[0]


def test_the_page_lists_exactly_the_classes_of_the_tree() -> None:
    names = [name_of(cell) for cell, _ in listed()]
    assert len(names) == len(set(names))
    assert set(names) == set(tree())


def test_the_page_is_in_the_order_of_the_tree() -> None:
    drawn = re.findall(r"[├└]── (\w+)", errors.__doc__ or "")
    assert [name_of(cell) for cell, _ in listed()][1:] == drawn


def test_bold_classes_stand_directly_under_the_base() -> None:
    group = ""
    for cell, _ in listed()[1:]:
        kind = tree()[name_of(cell)]
        if cell.startswith("**"):
            assert kind.__bases__[0] is errors.DeltaSharingError
            group = kind.__name__
        else:
            assert kind.__bases__[0].__name__ == group


def test_second_bases_are_listed() -> None:
    for cell, _ in listed():
        others = [base.__name__ for base in tree()[name_of(cell)].__bases__[1:]]
        assert re.findall(r"also `(\w+)`", cell) == others


def test_attributes_are_those_of_the_instances() -> None:
    for cell, attributes in listed():
        if "RestError" in attributes or "StorageError" in attributes:
            attributes = {name_of(c): a for c, a in listed()}[attributes[0]]
        kind = tree()[name_of(cell)]
        assert sorted(attributes) == sorted(vars(make(kind))), kind.__name__
