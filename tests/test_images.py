"""What the images of deploy/ contain, as far as it can be seen without building them, and where they run."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from pipelines.settings import loading
from tests.kubernetes.conftest import refused

ROOT = Path(__file__).parent.parent
LOCK = (ROOT / "requirements.lock").read_text()
needed = runpy.run_path(str(ROOT / "deploy" / "locked.py"))["needed"]


def names(lock: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9._-]+)==", lock, re.MULTILINE))


def asked_for(image: str) -> list[str]:
    """The arguments with which a Dockerfile selects from the lock file."""
    text = (ROOT / "deploy" / image / "Dockerfile").read_text()
    found = re.search(r"locked\.py \S+ (.*?) >", text)
    assert found
    return found[1].split()


@pytest.mark.fast
def test_a_selection_of_the_lock_file_has_what_it_depends_on_with_the_hashes() -> None:
    found = needed(LOCK, ["pandas"])
    assert names(found) == {"pandas", "numpy", "python-dateutil", "pytz", "tzdata"}
    assert found.count("--hash=sha256:") > 50
    assert all(entry in LOCK for entry in re.split(r"^(?=[a-z0-9])", found, flags=re.MULTILINE))


@pytest.mark.fast
def test_our_own_dependencies_are_selected_without_the_tools_of_developers() -> None:
    found = names(needed(LOCK, ["headroom"], without=["pyspark"]))
    assert {"dagster", "mlflow", "kubernetes", "kafka-python", "psycopg", "psycopg-binary"} <= found
    assert not found & {"pyspark", "py4j", "pytest", "ruff", "mypy", "hypothesis"}


@pytest.mark.fast
def test_a_package_that_is_not_in_the_lock_file_is_refused() -> None:
    with pytest.raises(SystemExit, match="not in the lock file: panda"):
        needed(LOCK, ["panda"])


def test_the_image_of_jobs_has_every_package_that_its_programs_import() -> None:
    statement = (
        "import sys, profiling_jobs.runner, profiling_jobs.recording.driver, profiling_jobs.replay.driver\n"
        "import pyspark.sql.streaming, pyspark.sql.pandas.functions, kafka, pandas\n"
        "print('\\n'.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", statement], cwd=ROOT, capture_output=True, text=True, check=True
    )
    by_package = packages_distributions()
    imported = {
        distribution.lower()
        for module in done.stdout.split()
        for distribution in by_package.get(module.partition(".")[0], [])
    }
    optional = {"headroom", "setuptools", "cloudpickle"}  # brought along by this environment, not asked for
    assert imported - optional <= names(needed(LOCK, asked_for("job")))


@pytest.mark.fast
@pytest.mark.parametrize("image", ["job", "control"])
def test_every_file_that_an_image_copies_is_in_its_context(image: str) -> None:
    text = (ROOT / "deploy" / image / "Dockerfile").read_text().replace("\\\n", " ")
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().split() if line.startswith("!")]
    copied = [
        source
        for line in re.findall(r"^COPY (?!--from)(.*)$", text, re.MULTILINE)
        for source in line.split()[:-1]
    ]
    assert copied
    for source in copied:
        assert (ROOT / source).exists(), source
        assert source.split("/")[0] in allowed, source


@pytest.mark.fast
@pytest.mark.parametrize("overlay", ["demo", "production"])
def test_the_settings_of_an_overlay_are_accepted(overlay: str) -> None:
    passwords = {"KAFKA_USERNAME": "headroom", "KAFKA_PASSWORD": "secret"}
    file = ROOT / "deploy" / "kustomize" / "overlays" / overlay / "headroom.toml"
    settings = loading.load(file, environment=passwords)
    assert settings.deployment.kind == "kubernetes"
    assert settings.brokers.bootstrap
    assert (settings.store.url_from is None) == (overlay == "demo")
    assert ("@sha256:" in settings.kubernetes.image) == (overlay == "production")


@pytest.mark.fast
@pytest.mark.parametrize(
    ("context", "environment", "said"),
    [
        ("headroom-test", {}, ""),
        ("production", {}, "the context is 'production', not 'headroom-test'"),
        ("production", {"HEADROOM_TEST_ANY_CONTEXT": "1"}, "HEADROOM_TEST_ANY_CONTEXT=yes-i-mean-it"),
        ("production", {"HEADROOM_TEST_ANY_CONTEXT": "yes-i-mean-it"}, ""),
    ],
)
def test_the_tests_of_a_cluster_touch_no_other_context(
    context: str, environment: dict[str, str], said: str
) -> None:
    found = refused(context, environment)
    assert said in found
    assert bool(found) == bool(said)
