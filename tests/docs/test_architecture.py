"""docs/architecture.md: its layers are those of the import contract, and the named modules exist."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "delta_sharing_client"


def page() -> str:
    return (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def listed_layers() -> list[str]:
    lines = page().split("```layers\n")[1].split("```")[0].splitlines()
    return [re.split(r"\s{2,}", line)[0] for line in lines]


def test_the_layers_are_those_of_the_import_contract() -> None:
    config = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = config["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    assert listed_layers() == layers


def test_every_package_and_module_has_a_layer() -> None:
    listed = {name for layer in listed_layers() for name in layer.split(" | ")}
    packages = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").exists()}
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__"}
    parents = {name.split(".")[0] for name in listed}
    assert (packages | modules) - parents == {"server"}


def test_the_modules_that_the_page_names_exist() -> None:
    named = re.findall(r"`([a-z_/]+\.py)`", page())
    assert len(named) > 10
    assert [name for name in named if not (PACKAGE / name).is_file()] == []
