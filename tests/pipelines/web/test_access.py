"""The rules of the door, one request at a time."""

import pytest

from models.errors import Misconfigured
from pipelines.settings.schema import WebSettings
from pipelines.web import access
from pipelines.web.access import TOKEN, Access, make_token, read_token, user_of

pytestmark = pytest.mark.fast

TOKEN_OF_TESTS = "a-token-of-these-tests"
ACCESS = Access(TOKEN_OF_TESTS, 8080, frozenset({"headroom.example.com"}))
HERE = {"Host": "127.0.0.1:8080"}
OURS = {**HERE, "Origin": "http://127.0.0.1:8080"}
BEARER = {"Authorization": f"Bearer {TOKEN_OF_TESTS}"}
LINK = {"Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


def status(method, path, headers, *, cookie=ACCESS.cookie, websocket=False):
    found = ACCESS.refusal(method, path, headers, cookie=cookie, websocket=websocket)
    return 200 if found is None else found.status


@pytest.mark.parametrize(
    ("method", "headers", "expected"),
    [
        ("GET", HERE, 200),
        ("GET", {"Host": "localhost:8080"}, 200),
        ("GET", {"Host": "headroom.example.com"}, 200),
        ("GET", {}, 403),
        ("GET", {"Host": "127.0.0.1:8081"}, 403),
        ("GET", {"Host": "rebound.example.net:8080"}, 403),
        ("POST", OURS, 200),
        ("POST", {"Host": "headroom.example.com", "Origin": "https://headroom.example.com"}, 200),
        ("POST", HERE, 403),
        ("POST", {**HERE, "Origin": "null"}, 403),
        ("POST", {**HERE, "Origin": "http://127.0.0.1:9999"}, 403),
        ("POST", {**HERE, "Origin": "http://localhost:8080"}, 403),
        ("GET", {**HERE, "Origin": "https://example.net"}, 403),
        ("GET", {**HERE, "Sec-Fetch-Site": "same-origin"}, 200),
        ("GET", {**HERE, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ("GET", {**HERE, "Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ("GET", {**HERE, "Sec-Fetch-Site": "cross-site", **LINK}, 200),
        ("GET", {**HERE, "Sec-Fetch-Site": "cross-site", **LINK, "Sec-Fetch-Dest": "iframe"}, 403),
        ("POST", {**OURS, "Sec-Fetch-Site": "cross-site", **LINK}, 403),
    ],
)
def test_only_our_own_pages_and_links_pass(method, headers, expected):
    assert status(method, "/dagster/runs", headers) == expected
    # The token helps no page of another site: a proxy adds it to whatever a browser sends.
    if "Origin" in headers or method == "GET":
        assert status(method, "/dagster/runs", {**headers, **BEARER}, cookie="") == expected


@pytest.mark.parametrize("cookie", ["", "another-token", f"{TOKEN_OF_TESTS}-", "ä", ACCESS.cookie])
def test_without_the_token_nothing_is_read(cookie):
    for path in ("/", "/dagster/runs", "/mlflow/health", "/nowhere"):
        assert status("GET", path, HERE, cookie=f"{cookie}.") == 401
        assert status("GET", path, {**HERE, "Authorization": f"Bearer {cookie}"}, cookie="") == 401
        assert status("GET", path, {**HERE, **BEARER}, cookie=cookie) == 200


def test_a_websocket_names_its_page_and_a_program_with_the_token_needs_none():
    assert status("POST", "/dagster/graphql", {**HERE, **BEARER}, cookie="") == 200
    assert status("GET", "/dagster/graphql", {**HERE, **BEARER}, cookie="", websocket=True) == 200
    assert status("GET", "/dagster/graphql", OURS, websocket=True) == 200
    assert status("GET", "/dagster/graphql", HERE, websocket=True) == 403
    assert status("GET", "/dagster/graphql", {**HERE, "Origin": "http://evil"}, websocket=True) == 403


@pytest.mark.parametrize("path", ["/dagster/graphql", "/dagster/graphql/", "/mlflow/graphql"])
def test_nothing_is_asked_of_graphql_by_get(path):
    assert status("GET", path, HERE) == status("HEAD", path, HERE) == 405
    assert status("POST", path, OURS) == 200


@pytest.mark.parametrize(
    ("method", "path", "passes"),
    [
        ("GET", "/mlflow/get-artifact", True),
        ("POST", "/mlflow/ajax-api/2.0/mlflow/runs/search", True),
        ("POST", "/mlflow/graphql", True),
        ("POST", "/dagster/graphql", True),  # Dagster's own --read-only refuses the mutations among them
        ("POST", "/mlflow/ajax-api/2.0/mlflow/runs/delete", False),
        ("POST", "/mlflow/ajax-api/2.0/mlflow/runs/delete/../search", False),
        ("POST", "/mlflow/ajax-api/2.0/mlflow/upload-artifact", False),
        ("DELETE", "/mlflow/ajax-api/2.0/mlflow/registered-models/delete", False),
        ("POST", "/dagster/report_asset_materialization/decision", False),
    ],
)
def test_read_only_lets_no_change_pass(method, path, passes):
    looking = Access(TOKEN_OF_TESTS, 8080, read_only=True)
    assert (looking.refusal(method, path, {**OURS, **BEARER}) is None) is passes
    assert ACCESS.refusal(method, path, {**OURS, **BEARER}) is None


def test_the_token_is_new_with_each_start_or_that_of_the_environment(tmp_path):
    make_token(tmp_path, WebSettings())
    first = read_token(tmp_path)
    make_token(tmp_path, WebSettings())
    assert len(first) == len(read_token(tmp_path)) == 43
    assert first != read_token(tmp_path)
    assert (tmp_path / TOKEN).stat().st_mode & 0o777 == 0o600
    given = WebSettings(token_from="PAGES")
    make_token(tmp_path, given, {"PAGES": f"{TOKEN_OF_TESTS}\n"})
    assert read_token(tmp_path) == TOKEN_OF_TESTS
    for wrong in ({}, {"PAGES": "short"}, {"PAGES": "with a blank; and a semicolon"}):
        with pytest.raises(Misconfigured, match=r"web\.token_from: the environment variable PAGES"):
            make_token(tmp_path, given, wrong)


def test_no_token_fits_where_there_is_none_and_one_is_shown_by_nothing():
    assert not Access("", 8080).fits("")
    assert ACCESS.cookie != TOKEN_OF_TESTS
    assert TOKEN_OF_TESTS not in repr(ACCESS)


def test_a_kernel_without_ipv6_still_says_that_a_connection_is_closed(tmp_path, monkeypatch):
    """Where the kernel does not tell whose it is, the door is content with the cookie."""
    (tmp_path / "tcp").write_text("  sl  local_address rem_address   st\n")
    monkeypatch.setattr(access, "NET", tmp_path)
    assert user_of(("127.0.0.1", 40_000), ("127.0.0.1", 8080)) is None
    (tmp_path / "tcp").unlink()
    with pytest.raises(FileNotFoundError):
        user_of(("127.0.0.1", 40_000), ("127.0.0.1", 8080))
