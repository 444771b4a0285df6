"""Processors of pods from Prometheus: a server in this process answers as its documented HTTP API does."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs

import pytest

from models.errors import Misconfigured, NotReady
from models.quantities import Unknown
from pipelines.integrations.prometheus import AGAIN_S, Prometheus, expression

pytestmark = pytest.mark.fast

NOW_S = 1_800_000_000.0


class Server:
    """Answers `query_range`, and keeps what it was asked."""

    def __init__(self):
        self.status = 200
        self.answer = matrix()
        self.asked = []


def matrix(**values):
    """Of a query that succeeds: the values of each pod, 15 s apart."""
    result = [
        {"metric": {"pod": pod}, "values": [[NOW_S - 45 + 15 * n, text] for n, text in enumerate(texts)]}
        for pod, texts in values.items()
    ]
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


def error(kind, told):
    return {"status": "error", "errorType": kind, "error": told}


@contextmanager
def served(server):
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            server.asked.append({key: values[0] for key, values in parse_qs(body).items()})
            found = server.answer if isinstance(server.answer, str) else json.dumps(server.answer)
            here = self.path == "/prometheus/api/v1/query_range"
            self.send_response(server.status if here else 404)
            self.end_headers()
            self.wfile.write(found.encode())

        def log_message(self, *_):
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{http.server_port}/prometheus/"
        finally:
            http.shutdown()
            thread.join()


@pytest.fixture
def server():
    return Server()


@pytest.fixture
def prometheus(server):
    with served(server) as url:
        found = Prometheus(url, clock=lambda: NOW_S)
        found._monotonic = lambda: 0.0
        yield found


def test_the_newest_number_of_each_pod_counts(server, prometheus):
    assert prometheus.processors("jobs", []) == {}
    assert server.asked == []
    server.answer = matrix(a=["0.25", "0.5"], b=["1.5", "NaN"], c=["NaN", "+Inf"], d=[])
    found = prometheus.processors("jobs", ["a", "b", "c", "d", "e"])
    assert (found["a"], found["b"]) == (0.5, 1.5)
    for pod in "cde":  # no number, no value, no series: never zero
        assert isinstance(found[pod], Unknown)
    server.answer = matrix(a=["many"])
    assert isinstance(prometheus.processors("jobs", ["a"])["a"], Unknown)


def test_it_is_asked_for_the_last_minute_by_the_names_of_the_pods(server, prometheus):
    prometheus.processors("jobs", ["b-exec-2", "a-exec-1"])
    (asked,) = server.asked
    assert (float(asked["start"]), float(asked["end"])) == (NOW_S - 60.0, NOW_S)
    assert asked["query"] == expression("jobs", ["a-exec-1", "b-exec-2"])
    assert 'namespace="jobs",pod=~"a-exec-1|b-exec-2",container!=""' in asked["query"]


@pytest.mark.parametrize(
    ("status", "answer", "raised", "words"),
    [
        (400, error("bad_data", 'parse error: unexpected "{"'), Misconfigured, "400 .bad_data: parse error"),
        (422, error("execution", "too many samples"), Misconfigured, "422 .execution: too many samples"),
        (503, error("timeout", "query timed out"), NotReady, "503 .timeout: query timed out.*asked again"),
        (502, "<html>no upstream</html>", NotReady, "502"),
        (404, "404 page not found", Misconfigured, "is it the address of a Prometheus server"),
        (200, "<html>a page</html>", NotReady, "does not answer properly"),
        (200, error("execution", "no"), Misconfigured, "kubernetes.prometheus_url: .*: no"),
        (200, {"hello": "world"}, Misconfigured, "not that of Prometheus"),
        (200, [1], Misconfigured, "not that of Prometheus"),
    ],
)
def test_an_error_is_told_and_makes_the_processors_unknown(server, prometheus, status, answer, raised, words):
    server.status, server.answer = status, answer
    with pytest.raises(raised, match=words) as told:
        prometheus.ask("up")
    assert prometheus.processors("jobs", ["a"]) == {"a": Unknown(str(told.value))}


def test_after_a_failure_nobody_asks_for_a_while(server, prometheus):
    server.status = 503
    for _ in range(3):
        assert isinstance(prometheus.processors("jobs", ["a"])["a"], Unknown)
    assert len(server.asked) == 1
    server.status, server.answer = 200, matrix(a=["0.5"])
    prometheus._monotonic = lambda: AGAIN_S
    assert prometheus.processors("jobs", ["a"]) == {"a": 0.5}


def test_a_server_that_is_away_is_unknown():
    with served(Server()) as url:
        pass
    with pytest.raises(NotReady, match="does not answer"):
        Prometheus(url).ask("up")
    assert isinstance(Prometheus(url).processors("jobs", ["a"])["a"], Unknown)
