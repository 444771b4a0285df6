"""Is the house in order? The rules that no linter knows."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("models", "profiling_jobs", "assets", "pipelines")
HEAVY = {*"pyspark mlflow sklearn pmdarima statsmodels scipy kubernetes matplotlib pandas".split()}


def tracked() -> list[Path]:
    names = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for name in names.stdout.split("\0") if name and (path := ROOT / name).is_file()]


@pytest.mark.fast
@pytest.mark.parametrize("name", PACKAGES)
def test_no_other_distribution_brings_a_package_of_ours(name: str) -> None:
    squatters = [d for d in packages_distributions().get(name, []) if d != "headroom"]
    assert not squatters, (
        f"the distribution {squatters[0]} also installs a top-level package called {name!r}, so "
        f"`import {name}` may not be ours; uninstall {squatters[0]} here (docs/decisions/0001)"
    )


@pytest.mark.fast
def test_every_name_at_the_top_is_there() -> None:
    wanted = """pyproject.toml requirements.lock Makefile dagster.yaml workspace.yaml headroom.toml
        README.md CHANGELOG.md LICENSE .ci/run
        models profiling_jobs assets pipelines tests deploy docs/decisions""".split()
    assert [name for name in wanted if not (ROOT / name).exists()] == []
    assert not (ROOT / "tests" / "__init__.py").exists(), "another distribution installs a package `tests`"


@pytest.mark.fast
def test_no_registry_address_and_no_path_of_one_machine_is_in_the_repository() -> None:
    forbidden = re.compile(
        r"https?://[^\s\"']*(?:pypi|pythonhosted|maven|npmjs|crates\.io|debian|golang)\S*|(?<![\w.])/(?:root|work|home)/\w+"
    )
    found = [
        f"{path.relative_to(ROOT)}: {match.group()}"
        for path in tracked()
        if path.suffix not in {".png", ".svg"} and path != Path(__file__)
        for match in forbidden.finditer(path.read_text(errors="replace"))
    ]
    assert found == []


@pytest.mark.fast
def test_the_lock_names_every_dependency_with_its_hash() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    every = set(re.findall(r"^([a-z0-9._-]+)==", lock, re.MULTILINE))
    hashed = set(re.findall(r"^([a-z0-9._-]+)==.*\\\n\s+--hash=sha256:[0-9a-f]{64}", lock, re.MULTILINE))
    assert every == hashed
    assert len(every) > 100
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    asked = project["project"]["dependencies"] + project["dependency-groups"]["dev"]
    asked += project["project"]["optional-dependencies"]["postgres"]
    names = {re.match(r"[A-Za-z0-9._-]+", line).group().lower() for line in asked}  # type: ignore[union-attr]
    assert names <= every


@pytest.mark.fast
def test_the_project_says_that_it_is_not_to_be_uploaded() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "Private :: Do Not Upload" in project["classifiers"]
    assert "pyspark==4.2.0" in project["dependencies"]


def modules_after(statement: str) -> set[str]:
    code = f"{statement}\nimport sys; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.split()}


def test_definitions_import_nothing_heavy() -> None:
    assert modules_after("import pipelines.definitions") & HEAVY == set()


def test_the_command_line_imports_nothing_heavy_before_a_command_is_chosen() -> None:
    assert modules_after("import pipelines.command_line") & {*HEAVY, "dagster", "numpy"} == set()


def test_the_door_imports_nothing_heavy() -> None:
    assert modules_after("import pipelines.web.door") & {*HEAVY, "dagster", "pyarrow", "psycopg"} == set()


def test_definitions_load() -> None:
    import dagster as dg

    from pipelines.definitions import definitions

    dg.Definitions.validate_loadable(definitions)
