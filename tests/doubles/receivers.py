"""Receivers of messages on 127.0.0.1: a web server that keeps what it is sent, and an SMTP server."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Web:
    """What was asked of it, and what it answers."""

    url: str = ""
    status: int = 200
    location: str = ""
    got: list[tuple[str, str, bytes]] = field(default_factory=list)
    """Method, path, body."""
    answering: threading.Event = field(default_factory=threading.Event)
    """Cleared: paths that begin with `slow` are not answered until it is set."""
    slow: str = ""


@dataclass
class Smtp:
    """The lines that it got, the e-mails, and what it answers to a command, or to a line, instead of yes."""

    port: int = 0
    answers: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    mails: list[bytes] = field(default_factory=list)


@contextmanager
def web() -> Iterator[Web]:
    kept = Web()
    kept.answering.set()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            kept.got.append((self.command, self.path, body))
            if self.path.startswith(kept.slow):
                kept.answering.wait(60.0)
            self.send_response(kept.status)
            if kept.location:
                self.send_header("Location", kept.location)
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_GET = do_POST

        def log_message(self, *given: object) -> None:
            pass

    with _served(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as port:
        kept.url = f"http://127.0.0.1:{port}"
        try:
            yield kept
        finally:
            kept.answering.set()


@contextmanager
def smtp() -> Iterator[Smtp]:
    kept = Smtp()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.say("220 here")
            for raw in self.rfile:
                line = raw.decode().strip()
                kept.lines.append(line)
                word = line.split()[0].upper()
                answer = kept.answers.get(word) or kept.answers.get(line.upper())
                if answer:
                    self.say(answer)
                elif word == "EHLO":
                    self.say("250-here", "250 AUTH PLAIN")
                elif word == "AUTH":
                    self.say("235 yes")
                elif word == "DATA":
                    self.say("354 go on")
                    mail = b""
                    while not mail.endswith(b"\r\n.\r\n"):
                        mail += self.rfile.readline()
                    kept.mails.append(mail)
                    self.say("250 taken")
                elif word == "QUIT":
                    self.say("221 bye")
                    return
                else:
                    self.say("250 yes")

        def say(self, *lines: str) -> None:
            self.wfile.write("".join(f"{line}\r\n" for line in lines).encode())

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with _served(Server(("127.0.0.1", 0), Handler)) as kept.port:
        yield kept


@contextmanager
def _served(server: socketserver.TCPServer) -> Iterator[int]:
    with server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            server.shutdown()
            thread.join()
