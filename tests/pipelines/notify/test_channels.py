"""Channels, each to a receiver on this machine: what arrives, and which failures are tried again."""

import base64
import email
import email.policy
import json
import os
import stat

import pytest
import receivers

from models.errors import Misconfigured, NotReady
from pipelines.notify.channels import configured, opened
from pipelines.notify.messages import Message
from pipelines.settings.schema import NotifySettings

MESSAGE = Message("alarm", "orders", "no metrics → held", 1_763_474_400.0)
SECRET = "/services/T0/hunter22"


def channel(environment=None, **settings):
    (found,) = opened(NotifySettings(**settings), environment or {}).values()
    return found


def failure(one, message=MESSAGE):
    with pytest.raises((Misconfigured, NotReady)) as caught:
        one.send(message)
    return caught.value


@pytest.fixture
def web():
    with receivers.web() as found:
        yield found


@pytest.fixture
def smtp():
    with receivers.smtp() as found:
        yield found


def webhook(web, **settings):
    return channel({"HOOK": f"{web.url}{SECRET}"}, url_from="HOOK", **settings)


class TestWebhook:
    def test_all_that_is_known_is_posted_as_json(self, web):
        webhook(web).send(MESSAGE)
        ((method, path, body),) = web.got
        assert (method, path, json.loads(body)) == ("POST", SECRET, MESSAGE.to_json())

    def test_slack_gets_its_form(self, web):
        webhook(web, form="slack").send(MESSAGE)
        ((_, _, body),) = web.got
        assert json.loads(body) == {"text": "*Headroom: orders: alarm*\nno metrics → held"}

    @pytest.mark.parametrize(
        ("status", "kind"),
        [
            (302, Misconfigured),
            (403, Misconfigured),
            (404, Misconfigured),
            (429, NotReady),
            (500, NotReady),
            (503, NotReady),
        ],
    )
    def test_what_is_refused_for_good_is_not_tried_again(self, web, status, kind):
        web.status, web.location = status, f"{web.url}/elsewhere"
        found = failure(webhook(web))
        assert type(found) is kind
        assert f"127.0.0.1 answered {status}" in str(found)
        assert "hunter22" not in f"{found!r} {found.__cause__!r} {found.__context__!r}"
        assert len(web.got) == 1, "it does not go where the answer leads to"

    def test_a_receiver_that_is_gone_or_silent_is_tried_again(self, web):
        web.answering.clear()
        assert "not in time" in str(failure(webhook(web, timeout_s=0.1)))
        with receivers.web() as gone:
            pass
        found = failure(webhook(gone))
        assert type(found) is NotReady
        assert "127.0.0.1 does not answer (Connection refused)" in str(found)

    def test_a_ping_is_a_get(self, web):
        channel({"BEAT": f"{web.url}/ping"}, heartbeat_url_from="BEAT").send(MESSAGE)
        assert web.got == [("GET", "/ping", b"")]


def mail(smtp, environment=None, **settings):
    given = {
        "email_to": ("oncall@example.com", "boss@example.com"),
        "email_sender": "headroom@example.com",
        "smtp": f"127.0.0.1:{smtp.port}",
        "smtp_security": "none",
    }
    return channel(environment, **given | settings)


LOGIN = {"username_from": "ME", "password_from": "PASSWORD"}
VARIABLES = {"ME": "headroom", "PASSWORD": "hunter22"}


class TestEmail:
    def test_it_arrives_with_a_login(self, smtp):
        mail(smtp, VARIABLES, **LOGIN).send(MESSAGE)
        (raw,) = smtp.mails
        found = email.message_from_bytes(raw, policy=email.policy.default)
        assert found["Subject"] == "Headroom: orders: alarm"
        assert (found["From"], found["To"]) == (
            "headroom@example.com",
            "oncall@example.com, boss@example.com",
        )
        assert found.get_content().splitlines()[0] == "no metrics → held"
        (login,) = (line.split()[2] for line in smtp.lines if line.startswith("AUTH"))
        assert base64.b64decode(login) == b"\0headroom\0hunter22"

    def test_without_a_user_name_it_does_not_log_in(self, smtp):
        mail(smtp).send(MESSAGE)
        assert len(smtp.mails) == 1
        assert not any(line.startswith("AUTH") for line in smtp.lines)

    @pytest.mark.parametrize(
        ("word", "answer", "setting"),
        [
            ("AUTH", "535 no", "notify.password_from"),
            ("RCPT", "550 nobody", "notify.email_to"),
            ("RCPT", "450 later", ""),
            ("MAIL", "550 no", "notify.email_sender"),
            ("DATA", "554 spam", "notify.smtp"),
            ("DATA", "451 later", ""),
            ("EHLO", "421 busy", ""),
        ],
    )
    def test_a_refusal_names_the_setting(self, smtp, word, answer, setting):
        smtp.answers = {word: answer} | ({"HELO": answer} if word == "EHLO" else {})
        found = failure(mail(smtp, VARIABLES, **LOGIN))
        assert getattr(found, "setting", "") == setting, found
        assert "hunter22" not in f"{found!r} {found.__cause__!r} {found.__context__!r}"
        assert smtp.mails == []

    def test_an_address_that_is_refused_does_not_keep_the_others_from_it(self, smtp):
        smtp.answers = {"RCPT TO:<BOSS@EXAMPLE.COM>": "450 later"}
        found = failure(mail(smtp))
        assert (type(found), found.setting) == (Misconfigured, "notify.email_to"), "it would come twice"
        assert "refuses boss@example.com, the others have got it" in str(found)
        assert len(smtp.mails) == 1

    def test_a_server_without_encryption_gets_nothing(self, smtp):
        found = failure(mail(smtp, VARIABLES, **LOGIN, smtp_security="starttls"))
        assert "smtp_security" in str(found)
        assert not any(line.startswith(("AUTH", "MAIL")) for line in smtp.lines)

    def test_a_server_that_says_no_goodbye_has_taken_it(self, smtp):
        smtp.answers = {"QUIT": "500 what"}
        mail(smtp).send(MESSAGE)
        assert len(smtp.mails) == 1

    def test_a_server_that_is_gone_is_tried_again(self):
        with receivers.smtp() as gone:
            pass
        assert type(failure(mail(gone))) is NotReady


class TestCommand:
    def test_it_gets_the_message_and_no_secret(self, tmp_path, monkeypatch):
        monkeypatch.setenv("MY_PASSWORD", "hunter22")
        path, seen = tmp_path / "message", tmp_path / "environment"
        channel(command=("sh", "-c", f"cat > {path}; env > {seen}")).send(MESSAGE)
        assert json.loads(path.read_text()) == MESSAGE.to_json()
        assert "hunter22" not in seen.read_text()
        assert f"PATH={os.environ['PATH']}" in seen.read_text()

    def test_it_may_leave_the_message_unread(self):
        channel(command=("true",)).send(MESSAGE)

    def test_how_it_ended_is_told_with_its_last_words(self):
        found = failure(channel(command=("sh", "-c", "echo first >&2; echo no route >&2; exit 3")))
        assert (type(found), str(found)) == (NotReady, "sh has ended with 3: no route")

    def test_one_that_hangs_is_killed(self):
        found = failure(channel(command=("sleep", "600"), timeout_s=0.1))
        assert str(found) == "sleep has not ended within 0.1 s"

    def test_one_that_is_not_there_is_not_tried_again(self, tmp_path):
        found = failure(channel(command=(str(tmp_path / "page"),)))
        assert (type(found), found.setting) == (Misconfigured, "notify.command")
        plain = tmp_path / "plain"
        plain.write_text("")
        plain.chmod(stat.S_IRUSR)
        assert type(failure(channel(command=(str(plain),)))) is Misconfigured


@pytest.mark.fast
class TestSettings:
    def test_nothing_is_set_by_default(self):
        assert configured(NotifySettings(), {}) == {}

    @pytest.mark.parametrize("key", ["url_from", "heartbeat_url_from"])
    @pytest.mark.parametrize(
        ("value", "told"),
        [
            ("", "the environment variable HOOK is not set: set it, or leave"),
            (SECRET, "begin it with http:// or https://"),
            (f"ftp://host{SECRET}", "begin it with http:// or https://"),
            (f"https://{SECRET}", "begin it with http:// or https://"),
            (f"https://host:1x{SECRET}", "begin it with http:// or https://"),
            (f"https://me:hunter22@host{SECRET}", "leave user names and spaces out"),
            (f"https://host{SECRET} x", "leave user names and spaces out"),
        ],
    )
    def test_an_address_that_cannot_be_used_is_told_and_not_quoted(self, key, value, told):
        (found,) = configured(NotifySettings(**{key: "HOOK"}), {"HOOK": value}).values()
        assert isinstance(found, Misconfigured)
        assert found.setting == f"notify.{key}"
        assert told in str(found)
        assert "hunter22" not in str(found)
        with pytest.raises(Misconfigured):
            opened(NotifySettings(**{key: "HOOK"}), {"HOOK": value})

    def test_one_that_is_wrong_does_not_hide_the_others(self):
        settings = NotifySettings(url_from="HOOK", command=("true",))
        found = configured(settings, {})
        assert [isinstance(one, Misconfigured) for one in found.values()] == [True, False]

    def test_what_is_secret_is_not_shown(self):
        settings = NotifySettings(
            url_from="HOOK",
            email_to=("a@b.c",),
            email_sender="d@b.c",
            smtp="mail.b.c:587",
            username_from="ME",
            password_from="PASSWORD",
        )
        given = {"HOOK": f"https://hooks.b.c{SECRET}", "ME": "me", "PASSWORD": "hunter22"}
        found = opened(settings, given)
        assert [one.where for one in found.values()] == ["hooks.b.c", "a@b.c by mail.b.c:587"]
        assert "hunter22" not in repr(found)
