"""What only a server can promise: it restarts, it refuses, and its address holds a password."""

import itertools
import json
import os
import signal
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress

import pytest
from command import headroom
from postgres_server import PASSWORD
from waiting import until

from models.errors import Misconfigured, NotReady, Unsafe
from models.ports import Control
from pipelines.command_line.doctor import findings
from pipelines.definitions import built
from pipelines.environments import base
from pipelines.integrations.ports import free_ports
from pipelines.integrations.stores.opening import find_store, open_store
from pipelines.integrations.stores.postgres import PostgresStore
from pipelines.settings import loading
from pipelines.settings.schema import StoreSettings
from profiling_jobs.orders import run_order
from tests.pipelines.test_drill_command import TOML as SERVED
from tests.pipelines.test_drill_command import serving

VARIABLE = "HEADROOM_STORE_URL"
SECRET = "s3cr3t"
SCHEMAS = itertools.count(1)
Open = Callable[..., PostgresStore]


def shown(error):
    """All that a log could show of it, with its causes."""
    return "".join(traceback.format_exception(error)) + repr(error)


class TestAddress:
    """No server is needed to see that it is wrong."""

    @pytest.mark.parametrize(
        "url",
        [
            SECRET,
            f"mysql://me:{SECRET}@db/headroom",
            f"postgresql+psycopg://me:{SECRET}@db/headroom",
            f"postgresql://me:{SECRET}@1@db/headroom",
            f"postgresql://me:1/{SECRET}@db/headroom",
            f"postgresql://me:1#{SECRET}@db/headroom",
            f"postgresql://me:1?{SECRET}@db/headroom",
            f"postgresql://me:%{SECRET}@db/headroom",
            f"postgresql://me:{SECRET}:5432/headroom",
            f"postgresql://me:{SECRET}@db:port/headroom",
            f"postgresql://me:{SECRET}@db/headroom?no_such_option=1",
            f"host=db user=me password={SECRET}",
            f"postgresql://me:{SECRET} 1@db/headroom",
        ],
    )
    def test_a_wrong_one_is_told_without_being_quoted(self, url):
        said = r"store\.url_from: .* HEADROOM_STORE_URL must be postgr"
        with pytest.raises(Misconfigured, match=said) as it:
            PostgresStore(url, variable=VARIABLE)
        assert SECRET not in shown(it.value)

    def test_a_server_that_is_not_there_is_named_with_its_setting(self):
        (port,) = free_ports(1)
        with pytest.raises(NotReady, match=rf"127\.0\.0\.1:{port}.*store\.url_from.* does not answer") as it:
            PostgresStore(f"postgresql://me:{SECRET}@127.0.0.1:{port}/headroom\n", variable=VARIABLE)
        assert SECRET not in shown(it.value)

    def test_a_variable_that_is_not_set_is_named(self, tmp_path):
        with pytest.raises(Misconfigured, match=r"store\.url_from: .*NO_SUCH_URL is not set: set it, or"):
            open_store(StoreSettings(url_from="NO_SUCH_URL"), tmp_path, environment={})
        assert list(tmp_path.iterdir()) == []


@pytest.fixture
def server(real_postgres):
    return real_postgres


@pytest.fixture
def opening(server):
    """Opens stores in a schema of this test's own."""
    schema = f"store_{next(SCHEMAS)}"

    def opened(url="", **options):
        return PostgresStore(url or server.url, **{"variable": VARIABLE, "schema": schema, **options})

    return opened


@pytest.mark.real
class TestRestarts:
    @pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGQUIT])
    def test_between_two_calls_costs_one_of_them(self, server, opening, how):
        with opening() as store:
            store.save_document("orders", "search", {"step": 1})
            server.stop(how)
            try:
                for _ in range(2):
                    with pytest.raises(NotReady):
                        store.save_document("orders", "search", {"step": 2})
                with pytest.raises(NotReady):
                    store.document("orders", "search")
            finally:
                server.start()
            assert store.document("orders", "search") == {"step": 1}
            store.save_document("orders", "search", {"step": 3})
            assert store.document("orders", "search") == {"step": 3}

    def test_of_the_server_only_costs_the_first_call(self, server, opening):
        with opening() as store:
            server.stop()
            server.start()
            with pytest.raises(NotReady, match="nothing was written, try again"):
                store.document("orders", "search")
            assert store.document("orders", "search") is None

    def test_during_calls_loses_nothing_that_was_said_to_be_written(self, server, opening):
        """Each thread counts up its own control state, and makes a write again whose outcome is unknown."""
        told = {}
        failed = []
        closing = threading.Event()
        with opening() as store:

            def count(job):
                seen = None
                while not closing.is_set():
                    try:
                        wanted = Control(job, 0 if seen is None else seen + 1, {})
                        written = store.save_control(wanted, expected_epoch=seen)
                        kept = store.control(job)
                    except NotReady as error:
                        failed.append(str(error))
                        time.sleep(0.01)
                        continue
                    # Refused where the write of before had arrived after all.
                    assert kept == wanted, (job, written, kept)
                    seen = told[job] = wanted.epoch

            threads = [threading.Thread(target=count, args=(f"job-{n}",)) for n in range(3)]
            for thread in threads:
                thread.start()
            for how in (signal.SIGQUIT, signal.SIGINT, signal.SIGQUIT):
                goal = sum(told.values()) + 60
                until(lambda goal=goal: sum(told.values()) >= goal, timeout_s=60.0)
                server.stop(how)
                server.start()
            closing.set()
            for thread in threads:
                thread.join()
            assert failed
            for job, epoch in told.items():
                kept = store.control(job)
                assert kept is not None
                assert kept.epoch >= epoch

    def test_a_commit_whose_outcome_is_unknown_is_said_to_be_so_and_repeated(self, server, opening):
        with opening(schema="breaks") as store:
            server.execute(
                "CREATE FUNCTION breaks.cut() RETURNS trigger LANGUAGE plpgsql AS"
                " 'BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END'",
                "CREATE CONSTRAINT TRIGGER cut AFTER INSERT ON breaks.controls"
                " DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION breaks.cut()",
            )
            with pytest.raises(NotReady, match="not known whether it was written: it can safely be repeated"):
                store.save_control(Control("orders", 0, {}), expected_epoch=None)
            server.execute("DROP TRIGGER cut ON breaks.controls")
            assert store.save_control(Control("orders", 0, {}), expected_epoch=None)
            assert store.control("orders") == Control("orders", 0, {})


@pytest.mark.real
class TestLocks:
    def test_a_writer_that_is_cut_off_loses_the_lock_and_its_write(self, opening):
        with opening(patience_s=0.3) as frozen, opening() as store:
            writing = frozen._writing()
            connection = writing.__enter__()
            connection.execute("INSERT INTO documents VALUES ('orders', 'search', '{}')")
            store.save_document("orders", "plan", {"by": "store"})
            with pytest.raises(NotReady, match=r"nothing was written|not known"):
                writing.__exit__(None, None, None)
            assert store.document("orders", "search") is None
            frozen.save_document("orders", "search", {"by": "frozen"})
            assert store.document("orders", "search") == {"by": "frozen"}


@pytest.mark.real
class TestRefusals:
    def refused(self, kind, match, opening, url, **options):
        with pytest.raises(kind, match=match) as it:
            opening(url, **options)
        assert str(it.value).count("store.url_from") == 1
        assert PASSWORD not in shown(it.value)
        assert SECRET not in shown(it.value)

    def test_a_wrong_password_or_database(self, server, opening):
        said = r"refuses us \(.*password authentication failed.*\): correct the URL in HEADROOM_STORE_URL"
        self.refused(Misconfigured, said, opening, server.url_with(password=SECRET))
        self.refused(Misconfigured, '"nowhere" does not exist', opening, server.url_with(database="nowhere"))

    def test_a_database_without_unicode(self, server, opening):
        server.execute(
            "CREATE DATABASE latin TEMPLATE template0 LOCALE_PROVIDER libc ENCODING 'LATIN1' LOCALE 'C'"
        )
        self.refused(Misconfigured, "ENCODING 'UTF8'", opening, server.url_with(database="latin"))

    def test_a_user_who_may_make_no_schema_may_use_one_that_is_there(self, server, opening):
        server.execute(f"CREATE ROLE guest LOGIN PASSWORD '{SECRET}'")
        guest = server.url_with(user="guest", password=SECRET)
        self.refused(Misconfigured, "GRANT CREATE ON DATABASE", opening, guest, schema="guests")
        server.execute("CREATE SCHEMA guests AUTHORIZATION guest")
        with opening(guest, schema="guests") as store:
            store.save_document("orders", "search", {})

    @pytest.mark.parametrize("table", ["theirs", "schema_version"])
    def test_tables_of_another_program(self, server, opening, table):
        schema = f"of_{table}"
        server.execute(f"CREATE SCHEMA {schema}", f"CREATE TABLE {schema}.{table} (version TEXT)")
        match = r"another program: choose another store\.schema_name"
        self.refused(Unsafe, match, opening, "", schema=schema)

    def test_a_server_that_takes_no_writes(self, server, opening):
        server.execute("CREATE DATABASE standby")
        with opening(server.url_with(database="standby")) as store:
            server.execute("ALTER DATABASE standby SET default_transaction_read_only = on")
            store.save_document("orders", "search", {})  # an open connection goes on
            self.refused(NotReady, "read-only", opening, server.url_with(database="standby"))


@pytest.mark.real
class TestInstallations:
    def test_two_schemas_of_one_database_know_nothing_of_each_other(self, opening):
        with opening(schema="one") as one, opening(schema="two") as two:
            assert one.save_control(Control("orders", 7, {}), expected_epoch=None)
            assert two.control("orders") is None
            with one._writing():  # nor do they wait for each other
                two.save_document("orders", "search", {})

    def test_looking_makes_nothing(self, server, tmp_path):
        settings, environment = StoreSettings(url_from="U", schema_name="looked"), {"U": server.url}
        assert find_store(settings, tmp_path, environment=environment) is None
        open_store(settings, tmp_path, environment=environment).close()
        found = find_store(settings, tmp_path, environment=environment)
        assert found is not None
        found.close()
        assert list(tmp_path.iterdir()) == []


TOML = """
[deployment]
kind = "simulated"

[store]
url_from = "HEADROOM_STORE_URL"
schema_name = "commands"

[job.orders]
build = "some.module:build"
inputs = {events = "orders"}
"""


@pytest.mark.real
def test_environments_and_commands_use_it_and_nobody_shows_the_password(server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, server.url)
    monkeypatch.setattr(findings, "DEADLINE_S", 60.0)
    (tmp_path / "headroom.toml").write_text(TOML)
    folder = tmp_path / ".headroom"
    printed = [headroom("history", "orders")]
    assert "schema commands in the database of store.url_from" in " ".join(printed[0].output.split())
    settings = loading.load(tmp_path / "headroom.toml", environment={VARIABLE: server.url})
    with base.opened(settings, folder) as environment:
        environment.store.record_evaluation("orders", interval=1, at_s=time.time() - 5.0, evaluation={})
    resource = built(tmp_path / "headroom.toml", folder, environment=os.environ).resources["store"]
    with resource.yield_for_execution(None) as of_a_run:
        assert len(of_a_run.evaluations("orders")) == 1
    (folder / "settings.json").write_text(settings.model_dump_json())
    printed += [headroom("pause", "orders", "--why", "a look", "--no-wait"), headroom("status")]
    doctor = headroom("doctor", "--json")
    (store,) = (one for one in json.loads(doctor.output)["findings"] if one["what"] == "store")
    assert (store["state"], f"127.0.0.1:{server.port}" in store["found"]) == ("ok", True)
    (tmp_path / "headroom.toml").write_text(TOML + "no_such_key = 1\n")
    printed += [doctor, headroom("pin", "orders", "1", "--why", "the file is broken", "--no-wait")]
    with PostgresStore(server.url, variable=VARIABLE, schema="commands") as there:
        assert [one["what"] for one in there.audit("orders")] == ["pause", "pin"]
    assert not (folder / "headroom.sqlite").exists()
    (tmp_path / "headroom.toml").write_text(TOML)
    monkeypatch.setenv(VARIABLE, server.url_with(password=SECRET))
    printed += [headroom("status"), headroom("doctor", "--json")]
    said = " ".join(one.output for one in printed)
    assert "password authentication failed" in said
    assert PASSWORD not in said
    assert SECRET not in said
    for file in folder.rglob("*"):
        with suppress(IsADirectoryError):
            assert PASSWORD.encode() not in file.read_bytes(), file


@pytest.mark.real
@pytest.mark.usefixtures("no_latency")
def test_a_running_service_evaluates_again_once_the_server_is_back(server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(VARIABLE, server.url)
    store = f'[store]\nurl_from = "{VARIABLE}"\nschema_name = "service"\n'
    with serving(tmp_path, store + SERVED) as service:

        def evaluate():
            with service.environment.hurried(), service.environment.taking_part():
                service.environment.clock.sleep(60.0)
            return str(service.server.evaluate("enrichment")["at_s"])

        run_order(service.server, "launch", "enrichment")
        evaluate()
        server.stop(signal.SIGQUIT)
        try:
            for _ in range(2):
                with pytest.raises(NotReady, match=r"store\.url_from.* does not answer"):
                    evaluate()
        finally:
            server.start()
        # The service had no reason to notice: its next call connects again.
        assert evaluate() < evaluate()
        assert len(service.environment.store.evaluations("enrichment")) == 3
