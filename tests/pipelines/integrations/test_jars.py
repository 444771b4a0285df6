"""The lock, the cache and the checksums, with a `java` of ours in Ivy's place; then Ivy itself."""

import errno
import hashlib
import os
import sys
import time
from pathlib import Path

import pytest

from models.errors import Misconfigured, NotReady, Unsafe
from pipelines.integrations import jars

# Answers `-version`, and "downloads" whatever the ivy.xml names: the content of a jar is its own name.
PRETENDING = """#!{python}
import re, sys, time, pathlib
words = sys.argv[1:]
if words[-1] == "-version":
    print('openjdk version "17.0.1"', file=sys.stderr); sys.exit(0)
with open({calls!r}, "a") as calls: calls.write("x")
pattern = words[words.index("-retrieve") + 1]
for name, revision in re.findall('name="([^"]+)" rev="([^"]+)"', open(words[words.index("-ivy") + 1]).read()):
    if name == "slow":
        time.sleep(60)
    if name == "absent":
        print("java.net.UnknownHostException: nowhere.example"); continue
    path = pattern.replace("[artifact]", name).replace("[revision]", revision).replace("[ext]", "jar")
    pathlib.Path(path).write_text(name)
    print(f"\\t[SUCCESSFUL ] org#{{name}};{{revision}}!{{name}}.jar (1ms)")
"""


def digest(text):
    return hashlib.sha256(text.encode()).hexdigest()


def locked(path, *names, **digests):
    lines = [f"org:{name}:1 sha256:{digests.get(name, digest(name))}" for name in names]
    lock = path / "test.lock"
    lock.write_text("# a comment\n[one]\n" + "\n".join(lines) + "\n\n[two]  # another\norg:other:2\n")
    return lock


@pytest.fixture
def calls(tmp_path, monkeypatch):
    calls = tmp_path / "calls"
    command = tmp_path / "jdk" / "bin" / "java"
    command.parent.mkdir(parents=True)
    command.write_text(PRETENDING.format(python=sys.executable, calls=str(calls)))
    command.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "jdk"))
    monkeypatch.delenv(jars.SETTINGS, raising=False)
    return calls


def test_every_jar_of_ours_is_locked():
    locked = jars.read_lock()
    assert {jar.group for jar in locked} == {"connector", "broker", "tools"}
    assert all(len(jar.sha256) == 64 for jar in locked)
    assert len({jar.file for jar in locked}) == len(locked)
    assert len([jar for jar in locked if jar.group == "connector"]) == 4


def test_jars_are_fetched_in_parallel_and_checked(tmp_path, calls):
    lock = locked(tmp_path, "a", "b", "c", "d")
    found = jars.fetch("one", cache=tmp_path / "cache", lock=lock)
    assert [path.read_text() for path in found] == ["a", "b", "c", "d"]
    assert len(calls.read_text()) == jars.PROCESSES
    kept = sorted(path.name for path in (tmp_path / "cache").iterdir())
    assert kept == [f"{name}-1.jar" for name in "abcd"]


def test_a_warm_cache_needs_neither_java_nor_a_network(tmp_path, calls, monkeypatch):
    lock = locked(tmp_path, "a", "b")
    first = jars.fetch("one", cache=tmp_path / "cache", lock=lock)
    calls.unlink()
    monkeypatch.setenv("JAVA_HOME", "")
    monkeypatch.setenv("PATH", "")
    assert jars.fetch("one", cache=tmp_path / "cache", lock=lock) == first
    assert not calls.exists()


def test_a_wrong_or_missing_checksum_names_the_jar_and_keeps_the_others(tmp_path, calls):
    lock = locked(tmp_path, "good", "bad", bad="0" * 64)
    with pytest.raises(Unsafe, match=r"checksum of org:bad:1 \(locked 0000.*not kept"):
        jars.fetch("one", cache=tmp_path / "cache", lock=lock)
    with pytest.raises(Unsafe, match=r"org:other:2 \(locked without one"):
        jars.fetch("two", cache=tmp_path / "cache", lock=lock)
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["good-1.jar"]


def test_a_jar_that_was_damaged_in_the_cache_is_fetched_again(tmp_path, calls):
    lock = locked(tmp_path, "a")
    (path,) = jars.fetch("one", cache=tmp_path / "cache", lock=lock)
    path.write_text("damaged")
    jars.fetch("one", cache=tmp_path / "cache", lock=lock)
    assert path.read_text() == "a"


def test_a_jar_that_does_not_arrive_is_named_with_the_reason_and_the_way_out(tmp_path, calls):
    lock = locked(tmp_path, "a", "absent")
    said = r"1 of 2 jars .* org:absent:1 \(java.net.UnknownHost.*HEADROOM_IVY_SETTINGS"
    with pytest.raises(NotReady, match=said):
        jars.fetch("one", cache=tmp_path / "cache", lock=lock)


def test_a_download_that_stands_still_is_given_up(tmp_path, calls, monkeypatch):
    monkeypatch.setattr(jars, "SILENCE_S", 0.5)
    before = time.monotonic()
    with pytest.raises(NotReady, match="stood still"):
        jars.fetch("one", cache=tmp_path / "cache", lock=locked(tmp_path, "slow"))
    assert time.monotonic() - before < 30
    assert list((tmp_path / "cache").iterdir()) == []


def test_the_lock_is_computed_again_with_its_comments_kept(tmp_path, calls):
    lock = locked(tmp_path, "a", "b", b="0" * 64)
    assert jars.relock(lock) == 2
    assert lock.read_text() == (
        f"# a comment\n[one]\norg:a:1 sha256:{digest('a')}\norg:b:1 sha256:{digest('b')}\n"
        f"\n[two]  # another\norg:other:2 sha256:{digest('other')}\n"
    )


@pytest.mark.parametrize("line", ["org:a", "org:a:1:2", "[one]\nno-colons"])
def test_a_line_that_is_no_jar_is_pointed_at(tmp_path, line):
    (tmp_path / "x.lock").write_text(line)
    with pytest.raises(Misconfigured, match=r"line [12]"):
        jars.read_lock(tmp_path / "x.lock")


def test_an_unknown_group_and_settings_that_are_not_there_are_named(tmp_path, calls, monkeypatch):
    lock = locked(tmp_path, "a")
    with pytest.raises(Misconfigured, match="no group three"):
        jars.fetch("one", "three", cache=tmp_path, lock=lock)
    monkeypatch.setenv(jars.SETTINGS, "/nowhere/ivysettings.xml")
    with pytest.raises(Misconfigured, match=jars.SETTINGS):
        jars.fetch("one", cache=tmp_path, lock=lock)


def test_a_cache_that_cannot_be_made_or_is_full_is_one_sentence(tmp_path, calls, monkeypatch):
    (tmp_path / "file").write_text("")
    lock = locked(tmp_path, "a")
    with pytest.raises(Misconfigured, match=r"^XDG_CACHE_HOME: .*file/jars.* \(Not a directory\): name"):
        jars.fetch("one", cache=tmp_path / "file" / "jars", lock=lock)

    def full(path, target):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(target))

    monkeypatch.setattr(Path, "replace", full)
    with pytest.raises(Misconfigured, match=r"^XDG_CACHE_HOME: .*cache.* \(No space left on device\)"):
        jars.fetch("one", cache=tmp_path / "cache", lock=lock)


@pytest.mark.real
def test_ivy_fetches_from_maven_central(tmp_path, real_java):
    found = jars.fetch("connector", cache=tmp_path)
    assert found[0].name == "spark-sql-kafka-0-10_2.13-4.2.0.jar"
    assert all(path.stat().st_size > 10_000 for path in found)


@pytest.mark.real
def test_ivy_reads_a_mirror_of_ones_own(tmp_path, real_java, monkeypatch):
    """A mirror in a folder, with two revisions of one module, as kafka-clients has."""
    lines = ["[one]"]
    for revision in ("1", "2"):
        (tmp_path / "mirror").mkdir(exist_ok=True)
        (tmp_path / "mirror" / f"a-{revision}.jar").write_text(revision)
        lines.append(f"org:a:{revision} sha256:{digest(revision)}")
    lock = tmp_path / "x.lock"
    lock.write_text("\n".join(lines))
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        '<ivysettings><settings defaultResolver="mine"/><resolvers><filesystem name="mine">'
        f'<artifact pattern="{tmp_path}/mirror/[artifact]-[revision].[ext]"/>'
        "</filesystem></resolvers></ivysettings>"
    )
    monkeypatch.setattr(jars, "PROCESSES", 1)
    monkeypatch.setenv(jars.SETTINGS, str(settings))
    found = jars.fetch("one", cache=tmp_path / "cache", lock=lock)
    assert [path.read_text() for path in found] == ["1", "2"]
