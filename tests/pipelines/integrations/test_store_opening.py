"""From SQLite to a database: refused to begin anew beside what is stored, and copied on request.

The database is a second SQLite file behind the URL; tests/contracts copies into a real Postgres.
"""

import json
from pathlib import Path

import pytest
from command import headroom

from models.errors import Misconfigured, Unsafe
from pipelines.command_line.doctor.findings import Surroundings
from pipelines.command_line.doctor.folder import store as examined
from pipelines.integrations.stores import opening, postgres
from pipelines.integrations.stores.opening import STORE, find_store, open_store, take_over
from pipelines.integrations.stores.sqlite import SqliteStore
from pipelines.processes.owner import Owner
from pipelines.settings import loading
from pipelines.settings.schema import StoreSettings

ON_SERVER = StoreSettings(url_from="STORE_URL")
TOML = '[deployment]\nkind = "simulated"\n[store]\nurl_from = "STORE_URL"\n'


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Where SQLite was used, and where the URL names a database that is empty."""
    database = tmp_path / "server.sqlite"

    def opened(url, *, variable, schema, create, patience_s):
        if not create and not database.exists():
            raise postgres.EmptyStore("nothing was ever stored there")
        return SqliteStore(database, patience_s=patience_s)

    monkeypatch.setattr(postgres, "PostgresStore", opened)
    monkeypatch.setenv("STORE_URL", "postgresql://db/headroom")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "headroom.toml").write_text(TOML)
    found = tmp_path / ".headroom"
    with SqliteStore(found / STORE) as store:
        store.save_document("orders", "copies", {"made": 1})
    return found


def doctor(folder):
    settings = loading.load(Path("headroom.toml"), environment={})
    (found,) = examined(Surroundings(settings, Path("headroom.toml"), folder, 0.0))
    return found


def test_a_database_is_not_begun_anew_beside_what_sqlite_holds(folder):
    for _ in range(2):  # the first attempt has made the tables
        assert "`headroom copy-store` copies it, or move the file aside" in doctor(folder).fix
        with pytest.raises(Unsafe, match=r"headroom\.sqlite holds what was learnt .* is empty: `headroom"):
            open_store(ON_SERVER, folder)
    (folder / STORE).rename(folder / "old.sqlite")
    assert doctor(folder).state == "ok"
    open_store(ON_SERVER, folder).close()


def test_copied_it_goes_on_from_there(folder):
    result = headroom("copy-store")
    assert (result.exit_code, "documents: 1\n" in result.stdout) == (0, True), result.output
    assert "1 rows of .headroom/headroom.sqlite copied into schema headroom" in result.stdout
    with open_store(ON_SERVER, folder) as store:
        assert store.document("orders", "copies") == {"made": 1}
    with find_store(ON_SERVER, folder) as found:
        assert not found.empty()
    assert doctor(folder).state == "ok"
    again = headroom("copy-store")
    assert (again.exit_code, "is not empty" in again.stderr) == (2, True)


def test_an_empty_file_stands_in_nobodys_way(folder):
    (folder / STORE).unlink()
    SqliteStore(folder / STORE).close()
    with open_store(ON_SERVER, folder) as store:
        assert store.empty()
    assert json.loads(headroom("copy-store", "--json").stdout)["rows"]["documents"] == 0


def test_what_cannot_be_copied_is_one_sentence(folder):
    with pytest.raises(Misconfigured, match=r"store\.url_from: is not set"):
        take_over(StoreSettings(), folder)
    with Owner(folder, command="headroom serve"):
        refused = headroom("copy-store")
    assert (refused.exit_code, "is owned by process" in refused.stderr) == (2, True)
    (folder / STORE).unlink()
    missing = headroom("copy-store")
    assert (missing.exit_code, "nothing to copy" in missing.stderr) == (2, True)
    assert not opening.not_taken_over(ON_SERVER, folder, None)
