"""Channels: how a message leaves, by a webhook, e-mail, or a command; and the ping of a dead man's switch.

A channel sends to what `[notify]` names, and nowhere else: a webhook that answers with a redirect has failed.
Its errors name the setting or the host, never an address or a password. NotReady: it may work later.
Misconfigured: the same message would be refused again.
"""

from __future__ import annotations

import http.client
import json
import os
import signal
import smtplib
import socket
import ssl
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from email.message import EmailMessage
from email.utils import formatdate, make_msgid
from typing import Any, Protocol
from urllib.parse import urlsplit

from models.errors import HeadroomError, Misconfigured, NotReady

from ..processes.owner import INHERITED
from ..settings.checks import host_and_port
from ..settings.schema import NotifySettings
from .messages import Message, slack

HEARTBEAT = "heartbeat"
LATER = (408, 425, 429)  # of the 4xx: the request was right
SAID = 200  # characters that are quoted of what a command says


class Channel(Protocol):
    """One way out."""

    @property
    def where(self) -> str:
        """Where messages go, without what is secret."""

    def send(self, message: Message) -> None: ...


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *given: Any) -> None:
        return None


@dataclass(frozen=True)
class _Address:
    """The address of a receiver; it is a secret, except for its host."""

    setting: str
    url: str = field(repr=False)
    timeout_s: float

    @property
    def where(self) -> str:
        return str(urlsplit(self.url).hostname)

    def ask(self, body: Any = None) -> None:
        """POST this as JSON, or GET without it."""
        request = urllib.request.Request(
            self.url,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json", "User-Agent": "headroom"},
        )
        problem: HeadroomError
        try:
            urllib.request.build_opener(_NoRedirect).open(request, timeout=self.timeout_s).close()
            return
        except urllib.error.HTTPError as refused:
            refused.close()
            problem = NotReady(f"{self.where} answered {refused.code}")
            if refused.code < 500 and refused.code not in LATER:
                told = (
                    f"{self.where} answered {refused.code}: correct the address in its environment variable"
                )
                problem = Misconfigured(self.setting, told)
        except (OSError, http.client.HTTPException, ValueError) as error:
            problem = NotReady(f"{self.where} does not answer ({_reason(error)})")
        raise problem  # here, so that no error that quotes the address is its context


@dataclass(frozen=True)
class Webhook:
    """Posts each message in the form that the receiver reads."""

    address: _Address
    form: Callable[[Message], Mapping[str, Any]]

    @property
    def where(self) -> str:
        return self.address.where

    def send(self, message: Message) -> None:
        self.address.ask(self.form(message))


@dataclass(frozen=True)
class Heartbeat:
    """Pings a dead man's switch, whatever the message says."""

    address: _Address

    @property
    def where(self) -> str:
        return self.address.where

    def send(self, message: Message) -> None:
        self.address.ask()


@dataclass(frozen=True)
class Email:
    """Hands e-mails to an SMTP server."""

    host: str
    port: int
    security: str
    sender: str
    to: tuple[str, ...]
    login: tuple[str, str] | None = field(repr=False)
    timeout_s: float

    @property
    def where(self) -> str:
        return f"{', '.join(self.to)} by {self.host}:{self.port}"

    def send(self, message: Message) -> None:
        mail = EmailMessage()
        mail["Subject"], mail["From"], mail["To"] = message.title, self.sender, ", ".join(self.to)
        mail["Date"], mail["Message-ID"] = formatdate(message.at_s), make_msgid(domain=_domain(self.sender))
        mail["Auto-Submitted"] = "auto-generated"
        mail.set_content(message.body)
        problem: HeadroomError
        taken = False
        try:
            with self._connected() as server:
                if self.login is not None:
                    server.login(*self.login)
                refused = server.send_message(mail)
                taken = True
            if not refused:
                return
            told = f"{self.host} refuses {', '.join(refused)}, the others have got it: correct it"
            raise Misconfigured("notify.email_to", told)  # and not tried again
        except smtplib.SMTPNotSupportedError as error:
            told = f"{self.host} cannot do what is asked of it ({error}): see smtp_security and username_from"
            problem = Misconfigured("notify.smtp", told)
        except smtplib.SMTPRecipientsRefused as error:
            for_good = any(code >= 500 for code, _ in error.recipients.values())
            told = f"{self.host} refuses {', '.join(error.recipients)}"
            problem = Misconfigured("notify.email_to", f"{told}: correct it") if for_good else NotReady(told)
        except smtplib.SMTPResponseException as error:
            kinds = {
                smtplib.SMTPSenderRefused: "email_sender",
                smtplib.SMTPAuthenticationError: "password_from",
            }
            told = f"{self.host} refuses it with {error.smtp_code}"
            problem = NotReady(told)
            if error.smtp_code >= 500:
                problem = Misconfigured(f"notify.{kinds.get(type(error), 'smtp')}", f"{told}: correct it")
        except (OSError, ValueError) as error:  # SMTPException is an OSError
            problem = NotReady(f"{self.host}:{self.port} does not answer ({_reason(error)})")
        if not taken:  # or the server has only not said goodbye
            raise problem  # here, so that no error that quotes the login is its context

    @contextmanager
    def _connected(self) -> Iterator[smtplib.SMTP]:
        name = socket.gethostname()  # smtplib would ask the name server for it, which may take long
        if self.security == "tls":
            context = ssl.create_default_context()
            with smtplib.SMTP_SSL(self.host, self.port, name, timeout=self.timeout_s, context=context) as tls:
                yield tls
            return
        with smtplib.SMTP(self.host, self.port, name, timeout=self.timeout_s) as server:
            if self.security == "starttls":
                server.starttls(context=ssl.create_default_context())
            yield server


@dataclass(frozen=True)
class Command:
    """Runs a program with the message on its standard input."""

    words: tuple[str, ...]
    timeout_s: float

    @property
    def where(self) -> str:
        return self.words[0]

    def send(self, message: Message) -> None:
        environment = {key: value for key, value in os.environ.items() if INHERITED.fullmatch(key)}
        name, text = self.words[0], json.dumps(message.to_json()).encode()
        with tempfile.TemporaryFile() as said:  # not a pipe, which a child of its own could keep open
            try:
                process = subprocess.Popen(
                    self.words,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.DEVNULL,
                    stderr=said,
                    env=environment,
                    start_new_session=True,
                )
            except OSError as error:
                told = f"{name} cannot be started ({error.strerror}): name a program, with its path"
                raise Misconfigured("notify.command", told) from error
            with process:
                try:
                    process.communicate(text, timeout=self.timeout_s)
                except subprocess.TimeoutExpired as late:
                    with suppress(ProcessLookupError, PermissionError):
                        os.killpg(process.pid, signal.SIGKILL)
                    raise NotReady(f"{name} has not ended within {self.timeout_s:g} s") from late
            if process.returncode:
                said.seek(0)
                lines = said.read()[-SAID * 4 :].decode(errors="replace").strip().splitlines()
                last = f": {lines[-1][:SAID]}" if lines else ""
                raise NotReady(f"{name} has ended with {process.returncode}{last}")


def configured(
    settings: NotifySettings, environment: Mapping[str, str]
) -> dict[str, Channel | Misconfigured]:
    """Name → the channel, or what is wrong with its settings; empty where nobody is to be told."""
    makers: dict[str, Callable[[], Channel]] = {}
    within_s = settings.timeout_s

    def address(key: str) -> _Address:
        return _Address(f"notify.{key}", _url(settings, key, environment), within_s)

    if settings.url_from is not None:
        form: Callable[[Message], Mapping[str, Any]]
        form = slack if settings.form == "slack" else Message.to_json
        makers["webhook"] = lambda: Webhook(address("url_from"), form)
    if settings.email_to:
        makers["e-mail"] = lambda: _email(settings, environment)
    if settings.command:
        makers["command"] = lambda: Command(settings.command, within_s)
    if settings.heartbeat_url_from is not None:
        makers[HEARTBEAT] = lambda: Heartbeat(address("heartbeat_url_from"))
    found: dict[str, Channel | Misconfigured] = {}
    for name, make in makers.items():
        try:
            found[name] = make()
        except Misconfigured as wrong:
            found[name] = wrong
    return found


def opened(settings: NotifySettings, environment: Mapping[str, str]) -> dict[str, Channel]:
    """The channels by name; Misconfigured where one cannot work."""
    found: dict[str, Channel] = {}
    for name, one in configured(settings, environment).items():
        if isinstance(one, Misconfigured):
            raise one
        found[name] = one
    return found


def _email(settings: NotifySettings, environment: Mapping[str, str]) -> Email:
    server = host_and_port(settings.smtp or "")
    if server is None or settings.email_sender is None:  # `headroom check` says more
        raise Misconfigured("notify.smtp", "e-mails need smtp and email_sender: set both")
    login = None
    if settings.username_from is not None:
        login = (
            _variable(settings, "username_from", environment),
            _variable(settings, "password_from", environment),
        )
    return Email(
        *server,
        security=settings.smtp_security,
        sender=settings.email_sender,
        to=settings.email_to,
        login=login,
        timeout_s=settings.timeout_s,
    )


def _url(settings: NotifySettings, key: str, environment: Mapping[str, str]) -> str:
    """An address that this variable holds; it is not quoted."""
    url = _variable(settings, key, environment)
    try:
        parts = urlsplit(url)
        right = bool(parts.scheme in ("http", "https") and parts.hostname and parts.port != 0)
    except ValueError:
        right = False
    if not right or "@" in parts.netloc or not url.isascii() or not url.isprintable() or " " in url:
        raise Misconfigured(
            f"notify.{key}",
            f"the environment variable {getattr(settings, key)} holds no address that can be used: begin it "
            "with http:// or https://, and leave user names and spaces out",
        )
    return url


def _variable(settings: NotifySettings, key: str, environment: Mapping[str, str]) -> str:
    name = getattr(settings, key)
    if not (value := environment.get(name or "", "").strip()):
        raise Misconfigured(
            f"notify.{key}", f"the environment variable {name} is not set: set it, or leave {key} out"
        )
    return value


def _domain(address: str) -> str:
    return address.rpartition("@")[2]


def _reason(error: BaseException) -> str:
    """Why, without the texts of errors that quote what was asked."""
    reason = getattr(error, "reason", error)
    if isinstance(reason, TimeoutError):
        return "not in time"
    if isinstance(reason, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {reason.verify_message}"
    told = reason.strerror if isinstance(reason, OSError) else ""
    return told or type(reason).__name__
