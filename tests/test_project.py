"""What the project file promises: small core, extras whose sum is `all`, one console script, four packages, pinned torch."""
from __future__ import annotations

import re
import tomllib
from pathlib import Path

from asdstore.installation import PACKAGES

REPOSITORY = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=!~; ]", requirement)[0] for requirement in requirements}


def constraints() -> dict[str, str]:
    lines = (REPOSITORY / "constraints.txt").read_text().splitlines()
    return dict(line.lower().replace("_", "-").split("==") for line in lines if line and not line.startswith("#"))


def test_core_dependencies_stay_small():
    core = {"numpy", "zarr", "numcodecs", "tensorstore", "soundfile", "google-crc32c"}
    assert names(PROJECT["project"]["dependencies"]) == core


def test_all_is_the_sum_of_the_extras():
    extras = dict(PROJECT["project"]["optional-dependencies"])
    inner = re.fullmatch(r"asdstore\[(.+)\]", *extras.pop("all"))
    assert inner
    assert set(inner[1].split(",")) == set(extras) - {"test", "bench"}  # dev has test within, and test has bench
    assert any(requirement == "asdstore[test]" for requirement in extras["dev"])


def test_every_direct_dependency_is_constrained():
    extras = PROJECT["project"]["optional-dependencies"]
    wanted = names([*PROJECT["project"]["dependencies"], *(one for extra in extras.values() for one in extra)]) - {"asdstore"}
    assert {name.lower().replace("_", "-") for name in wanted} <= set(constraints())
    assert constraints()["torch"].startswith("2.")


def test_one_console_script():
    assert PROJECT["project"]["scripts"] == {"asdstore": "asdstore.cli:main"}


def test_the_four_packages_and_their_data_are_shipped():
    find, data = PROJECT["tool"]["setuptools"]["packages"]["find"], PROJECT["tool"]["setuptools"]["package-data"]
    assert set(find["include"]) == {name + end for name in PACKAGES for end in ("", ".*")} and find["namespaces"] is False
    assert data["spec"] == ["README.md", "vectors/**/*"]
