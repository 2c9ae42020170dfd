"""Shadowed siblings are named before anything of theirs runs; importing asdstore stays light."""
from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest

from asdstore import installation

REPOSITORY = Path(__file__).resolve().parents[2]
HEAVY = ("torch", "jax", "grain", "zarr", "tensorstore", "cv2", "av", "soxr", "soundfile", "numcodecs", "pyarrow", "lightning")
EDITABLE = """
import importlib.util, os, sys
class Finder:  # what an editable install appends: asked only when the path has nothing of that name
    @staticmethod
    def find_spec(name, path=None, target=None):
        folder = os.path.join({root!r}, name)
        if name in {names!r}:
            return importlib.util.spec_from_file_location(
                name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder])
sys.meta_path.append(Finder)
"""


def run(code: str, folder: Path, *path: Path) -> subprocess.CompletedProcess[str]:
    """Python in `folder`, which `-c` puts first on the import path."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, path))}
    return subprocess.run([sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True,
                          timeout=120)


def last_line(result: subprocess.CompletedProcess[str]) -> str:
    assert result.returncode == 1, result
    return result.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("package", ["asdstore", "adapters", "pipelines", "spec"])
def test_packages_come_from_here(package: str):
    assert installation.locate(package) == str(REPOSITORY / package / "__init__.py")
    result = run(f"import {package}; print({package}.__file__)", REPOSITORY.parent, REPOSITORY)
    assert result.stdout.strip() == str(REPOSITORY / package / "__init__.py"), result.stderr


@pytest.mark.parametrize("package", ["adapters", "pipelines", "spec"])
@pytest.mark.parametrize("kind", ["module", "package"])
def test_a_users_file_is_named_and_not_run(tmp_path: Path, package: str, kind: str):
    shadow = tmp_path / f"{package}.py" if kind == "module" else tmp_path / package / "__init__.py"
    shadow.parent.mkdir(exist_ok=True)
    shadow.write_text("raise SystemExit('the shadowing file ran')")
    error = last_line(run("import asdstore", tmp_path, REPOSITORY))
    assert error.startswith("ImportError: ") and str(shadow) in error and str(REPOSITORY / package) in error


def test_a_folder_without_init_before_an_editable_install(tmp_path: Path):
    (tmp_path / "spec").mkdir()
    (tmp_path / "spec" / "notes.txt").write_text("mine")
    editable = EDITABLE.format(root=str(REPOSITORY), names=installation.PACKAGES)
    error = last_line(run(editable + "import asdstore", tmp_path))
    assert f"{tmp_path / 'spec'} shadows the package 'spec'" in error
    (tmp_path / "spec" / "notes.txt").unlink()
    (tmp_path / "spec").rmdir()
    assert run(editable + "import asdstore", tmp_path).returncode == 0


def test_a_folder_without_init_before_a_plain_path_is_harmless(tmp_path: Path):
    (tmp_path / "spec").mkdir()  # a regular package later on the path wins over it
    assert run("import asdstore, spec; assert spec.__file__", tmp_path, REPOSITORY).returncode == 0


def test_another_distribution_earlier_on_the_path(tmp_path: Path):
    foreign = tmp_path / "site" / "adapters"
    foreign.mkdir(parents=True)
    (foreign / "__init__.py").write_text("")
    error = last_line(run("import asdstore", tmp_path, tmp_path / "site", REPOSITORY))
    assert str(foreign / "__init__.py") in error and f"take {tmp_path / 'site'} off the import path" in error


def test_another_distribution_wrote_over_ours(tmp_path: Path):
    site = tmp_path / "site"
    for package in installation.PACKAGES:
        shutil.copytree(REPOSITORY / package, site / package, ignore=shutil.ignore_patterns("vectors", "__pycache__"))
    assert run("import asdstore", tmp_path, site).returncode == 0
    (site / "adapters" / "__init__.py").write_text("raise SystemExit('it ran')\n")
    facts = site / "adapters-1.3.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: adapters\nVersion: 1.3.0\n")
    (facts / "top_level.txt").write_text("adapters\n")
    error = last_line(run("import asdstore", tmp_path, site))
    assert str(site / "adapters" / "__init__.py") in error and "adapters has put its own file there" in error


def test_a_missing_sibling_is_named(tmp_path: Path):
    shutil.copytree(REPOSITORY / "asdstore", tmp_path / "asdstore", ignore=shutil.ignore_patterns("__pycache__"))
    for package in ("adapters", "pipelines"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text('"""asdstore"""')
    code = ("import sys; sys.meta_path[:] = [f for f in sys.meta_path if 'Editable' not in repr(f)]; "  # were we installed so
            f"sys.path[:] = [p for p in sys.path if p != {str(REPOSITORY)!r}]; import asdstore")
    assert "the package 'spec' of asdstore is missing" in last_line(run(code, tmp_path))


@pytest.mark.parametrize("wing", ["adapters", "pipelines"])
def test_each_wing_verifies_too(tmp_path: Path, wing: str):
    (tmp_path / "spec.py").write_text("")
    error = last_line(run(f"import {wing}", tmp_path, REPOSITORY))
    assert f"{tmp_path / 'spec.py'} shadows the package 'spec'" in error


def test_import_is_light():
    result = run("import asdstore, sys; print(*sys.modules)", REPOSITORY)
    assert result.returncode == 0, result.stderr
    assert not set(result.stdout.split()) & set(HEAVY)


def test_import_time_stays_near_that_of_numpy():
    def best(module: str, tries: int = 5) -> float:
        times = []
        for _ in range(tries):
            started = time.perf_counter()
            subprocess.run([sys.executable, "-c", f"import {module}"], cwd=REPOSITORY, check=True)
            times.append(time.perf_counter() - started)
        return min(times)

    assert best("asdstore") < 3 * best("numpy")  # the claim is 2, the rest is for busy machines
