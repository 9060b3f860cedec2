"""Package: exports, cost of the import, contents of the wheel."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email import message_from_string
from pathlib import Path

import pytest

import delta_sharing_client as ds

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "delta_sharing_client"
HEAVY = ("pandas", "pyarrow", "numpy", "pyspark", "requests", "urllib3", "tenacity", "tqdm", "fsspec", "starlette")


def loaded_after(code: str) -> set[str]:
    """Run code in a fresh interpreter; return the libraries of `HEAVY` that it loaded."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"{code}\nimport sys\nprint(*sys.modules)"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return {name for name in HEAVY if name in done.stdout.split()}


def test_importing_it_loads_nothing_heavy() -> None:
    assert loaded_after("import delta_sharing_client") == set()


def test_listing_its_names_loads_nothing_heavy() -> None:
    assert loaded_after("import delta_sharing_client as ds; dir(ds); ds.__version__; ds.errors; ds.Table") == set()


def test_a_client_loads_no_frames() -> None:
    code = (
        "import delta_sharing_client as ds\n"
        "ds.SharingClient({'shareCredentialsVersion': 1, 'endpoint': 'https://h', 'bearerToken': 't'})"
    )
    assert not loaded_after(code) & {"pandas", "pyspark", "fsspec", "starlette"}


def test_the_first_request_waits_for_no_import_of_arrow_or_pandas() -> None:
    code = (
        "import delta_sharing_client as ds, sys\n"
        "from delta_sharing_client.rest.client import RestClient\n"
        "def table_metadata(*args, **options):\n"
        "    print(*sys.modules)\n"
        "    sys.exit()\n"
        "RestClient.table_metadata = table_metadata\n"
        "profile = {'shareCredentialsVersion': 1, 'endpoint': 'https://h', 'bearerToken': 't'}\n"
        "ds.SharingClient(profile).table('a.b.c').scan(filters='d > 1').plan()"
    )
    assert not loaded_after(code) & {"pandas", "pyarrow", "numpy", "fsspec"}


@pytest.mark.parametrize("call", ["to_pandas", "to_arrow"])
def test_arrow_is_imported_while_the_first_request_waits(call: str) -> None:
    """The server answers when Arrow has been imported; a load that imports it after the answer would hang."""
    code = (
        "import http.server, sys, threading, time\n"
        "import delta_sharing_client as ds\n"
        "class Handler(http.server.BaseHTTPRequestHandler):\n"
        "    def do_POST(self):\n"
        "        while not {'pyarrow', 'numpy'} <= set(sys.modules):\n"
        "            time.sleep(0.005)\n"
        "        self.send_error(403)\n"
        "    def log_message(self, *args): pass\n"
        "server = http.server.HTTPServer(('127.0.0.1', 0), Handler)\n"
        "threading.Thread(target=server.serve_forever, daemon=True).start()\n"
        "endpoint = f'http://127.0.0.1:{server.server_port}'\n"
        "profile = {'shareCredentialsVersion': 1, 'endpoint': endpoint, 'bearerToken': 't'}\n"
        "try:\n"
        f"    ds.SharingClient(profile).table('a.b.c').scan().{call}()\n"
        "except ds.errors.ForbiddenError:\n"
        "    pass\n"
    )
    assert {"pyarrow", "numpy"} <= loaded_after(code)


def test_every_public_name_resolves() -> None:
    for name in ds.__all__:
        value = getattr(ds, name)
        if not name.startswith("__") and not re.match(r"errors|server|sinks|spark", name):
            assert value.__name__ == name
            assert value.__module__.startswith("delta_sharing_client.")
            assert value.__doc__


def test_no_name_is_listed_twice() -> None:
    assert len(ds.__all__) == len(set(ds.__all__))


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    blocks = [node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    seen = {
        alias.asname or alias.name: f"{node.module}"
        for block in blocks
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert {*seen, "__version__"} == set(ds.__all__)
    for name, home in seen.items():
        assert getattr(ds, name) is getattr(importlib.import_module(home), name)


def test_dir_lists_the_public_names() -> None:
    assert set(ds.__all__) <= set(dir(ds))
    assert dir(ds) == sorted(dir(ds))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'delta_sharing_client' has no attribute 'load_as_panda'"):
        ds.load_as_panda  # noqa: B018
    with pytest.raises(ImportError, match="load_as_panda"):
        exec("from delta_sharing_client import load_as_panda")


def test_a_star_import_gives_the_public_names() -> None:
    namespace: dict[str, object] = {}
    exec("from delta_sharing_client import *", namespace)
    assert set(ds.__all__) <= set(namespace)


def test_the_version_is_that_of_the_distribution() -> None:
    from delta_sharing_client._version import __version__

    assert ds.__version__ == __version__
    assert re.fullmatch(r"\d+\.\d+\.\d+([a-z]+\d+)?", __version__)
    assert f"\n## {__version__} " in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def test_every_module_imports() -> None:
    for path in PACKAGE.rglob("*.py"):
        if path.stem not in ("__main__",):
            parts = path.relative_to(ROOT).with_suffix("").parts
            importlib.import_module(".".join(part for part in parts if part != "__init__"))


def test_every_directory_has_an_init_module() -> None:
    folders = {path.parent for path in PACKAGE.rglob("*.py")}
    assert all((folder / "__init__.py").is_file() for folder in folders)


def test_nothing_prints_or_asserts_in_the_library() -> None:
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            assert not isinstance(node, ast.Assert), f"{path.name}:{node.lineno}"
            called = node.func if isinstance(node, ast.Call) else None
            assert not (isinstance(called, ast.Name) and called.id == "print"), f"{path.name}:{node.lineno}"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of the working tree, built with the installed tools."""
    folder = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = folder.glob("*.whl")
    return found


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    assert wheel.name == f"delta_sharing_client-{ds.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    info = f"delta_sharing_client-{ds.__version__}.dist-info"
    files = {path for path in PACKAGE.rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    toplevel = PACKAGE / "spark" / "toplevel"
    expected = {path.relative_to(ROOT).as_posix() for path in files if toplevel not in path.parents}
    assert "delta_sharing_client/py.typed" in expected
    expected.add("pyspark_delta_sharing.py")  # where Spark looks for data sources
    expected |= {
        f"{info}/{name}" for name in ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE")
    }
    assert names == expected


@pytest.mark.slow
def test_the_wheel_describes_itself(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (path,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        metadata = message_from_string(archive.read(path).decode())
    assert metadata["Name"] == "delta-sharing-client"
    assert metadata["Version"] == ds.__version__
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert set(metadata.get_all("Provides-Extra")) >= {"remote", "server", "all"}
    assert metadata.get_payload().startswith("# delta-sharing-client\n")
    requirements = [text for text in metadata.get_all("Requires-Dist") if "extra ==" not in text]
    assert requirements
    assert not [text for text in requirements if "<" in text], "no upper pins"


@pytest.mark.slow
def test_the_wheel_installs_and_imports(wheel: Path, tmp_path: Path) -> None:
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"),
            *("--no-deps", "--no-index", "--no-compile", "--target", str(tmp_path), str(wheel)),
        ],
        capture_output=True,
        check=True,
    )
    code = (
        "import sys\n"
        f"sys.path.insert(0, {str(tmp_path)!r})\n"
        "import delta_sharing_client as ds\n"
        "print(ds.__file__, ds.__version__, ds.load_as_pandas.__name__)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-W", "error", "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    file, version, name = done.stdout.split()
    assert Path(file) == tmp_path / "delta_sharing_client" / "__init__.py"
    assert (version, name) == (ds.__version__, "load_as_pandas")


@pytest.mark.slow
def test_the_source_archive_has_what_the_wheel_is_built_from(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = tmp_path.glob("*.tar.gz")
    with tarfile.open(found) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for name in ("delta_sharing_client/py.typed", "examples/duckdb_pipeline.py", "CITATION.cff", "Dockerfile"):
        assert name in names
    check = [sys.executable, "-m", "twine", "check", "--strict", str(found)]
    assert subprocess.run(check, capture_output=True, check=False).returncode == 0


def test_the_citation_has_the_version() -> None:
    lines = (ROOT / "CITATION.cff").read_text(encoding="utf-8").splitlines()
    assert f"version: {ds.__version__}" in lines
    assert "license: Apache-2.0" in lines


def test_the_dockerfile_names_what_exists() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (extras,) = re.findall(r"\$wheel\[([a-z,]+)\]", text)
    assert set(extras.split(",")) <= set(project["optional-dependencies"])
    assert "dist/delta_sharing_client-*-py3-none-any.whl" in text
    assert re.findall(r'^ENTRYPOINT \["([a-z-]+)"\]', text, re.MULTILINE) == list(project["scripts"])
    assert "!dist/*.whl" in (ROOT / ".dockerignore").read_text(encoding="utf-8")


def test_the_license_is_complete() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert text.lstrip().startswith("Apache License\n")
    assert "END OF TERMS AND CONDITIONS" in text
    assert "APPENDIX: How to apply the Apache License to your work." in text
    assert text.rstrip().endswith("limitations under the License.")
