"""docs/architecture.md: the drawn floors are the import contracts, the named modules exist."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "delta_sharing_client"


def page() -> str:
    return (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_the_drawing_shows_the_layers_of_the_import_contract() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = config["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    drawing = page().split("```floors\n")[1].split("```")[0]
    assert [re.split(r"\s{2,}", line)[0] for line in drawing.splitlines()] == layers


def test_every_room_of_the_package_is_drawn() -> None:
    drawing = page().split("```floors\n")[1].split("```")[0]
    drawn = {name for line in drawing.splitlines() for name in re.split(r"\s{2,}", line)[0].split(" | ")}
    rooms = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    parents = {name.split(".")[0] for name in drawn}
    assert (rooms | modules) - parents == {"server"}


def test_the_modules_that_the_page_names_exist() -> None:
    named = re.findall(r"`([a-z_/]+\.py)`", page())
    assert len(named) > 10
    assert [name for name in named if not (PACKAGE / name).is_file()] == []
