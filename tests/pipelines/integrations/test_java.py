"""Finding a Java, told with shell scripts that answer as Javas do."""

import sys

import pytest

from models.errors import Misconfigured
from pipelines.integrations import java


def pretend(home, answer, *, code=0):
    command = home / "bin" / "java"
    command.parent.mkdir(parents=True)
    program = f"import sys\nprint({answer!r}, file=sys.stderr)\nsys.exit({code})\n"
    command.write_text(f"#!{sys.executable}\n{program}")
    command.chmod(0o755)
    return home


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15', 17),
        ('openjdk version "21" 2023-09-19', 21),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx=1\njava version "25-ea" 2025-09-16', 25),
    ],
)
def test_a_java_that_is_new_enough_is_found(tmp_path, answer, version):
    home = pretend(tmp_path / "jdk", answer)
    assert java.find({"JAVA_HOME": str(home)}) == java.Java(home, version)
    assert java.find({"PATH": str(home / "bin")}).command == home / "bin" / "java"


def test_java_home_comes_before_path_unless_it_is_too_old(tmp_path):
    old = pretend(tmp_path / "old", 'openjdk version "1.8.0_392"')
    new = pretend(tmp_path / "new", 'openjdk version "17.0.1"')
    newer = pretend(tmp_path / "newer", 'openjdk version "21.0.1"')
    assert java.find({"JAVA_HOME": str(newer), "PATH": str(new / "bin")}).home == newer
    assert java.find({"JAVA_HOME": str(old), "PATH": str(new / "bin")}).home == new


def test_a_link_on_path_leads_to_the_home(tmp_path):
    home = pretend(tmp_path / "jdk", 'openjdk version "17.0.1"')
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert java.find({"PATH": str(tmp_path / "bin")}).home == home


def test_a_script_on_path_that_starts_another_java_is_asked_for_the_home(tmp_path):
    """As jenv and asdf put one there; beside it lies no Java."""
    home = pretend(tmp_path / "jdks" / "17", "")
    told = f'Property settings:\n    java.home = {home}\n    x = y\n\nopenjdk version "17.0.1"'
    shims = tmp_path / "shims"
    pretend(shims, told)
    (shims / "bin").rename(tmp_path / "on-path")
    assert java.find({"PATH": str(tmp_path / "on-path")}) == java.Java(home, 17)


@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        ('java version "1.8.0_392"', 0, "JAVA_HOME is Java 8"),
        ('openjdk version "11.0.2" 2019-01-15', 0, "JAVA_HOME is Java 11"),
        ("hello", 0, "JAVA_HOME is not a Java that runs"),
        ('openjdk version "17.0.1"', 1, "JAVA_HOME is not a Java that runs"),
    ],
)
def test_what_is_there_instead_is_said(tmp_path, answer, code, said):
    home = pretend(tmp_path / "jdk", answer, code=code)
    with pytest.raises(Misconfigured, match=said):
        java.find({"JAVA_HOME": str(home), "PATH": ""})


@pytest.mark.parametrize("environment", [{}, {"PATH": ""}, {"JAVA_HOME": "", "PATH": "/nowhere"}])
def test_without_java_one_sentence_says_what_installs_it(environment):
    said = r"Java 17 or newer is needed, .*install it with `sudo \w+"
    with pytest.raises(Misconfigured, match=said) as error:
        java.find(environment)
    assert "\n" not in str(error.value)
