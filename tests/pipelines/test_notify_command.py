"""`headroom notify`, and what `check` and `doctor` say of the section."""

import json

import pytest
import receivers
from command import headroom

from pipelines.settings import loading
from pipelines.settings.loading import WrongSettings

TOML = """
[deployment]
kind = "simulated"
[notify]
url_from = "HOOK"
form = "slack"
command = ["true"]
"""


def notify(*arguments):
    result = headroom("notify", "--json", *arguments)
    return json.loads(result.output), result.exit_code


def test_a_test_message_goes_out_by_every_channel(project, monkeypatch):
    (project / "headroom.toml").write_text(TOML + 'heartbeat_url_from = "BEAT"\n')
    with receivers.web() as web:
        monkeypatch.setenv("HOOK", f"{web.url}/hunter22")
        monkeypatch.setenv("BEAT", f"{web.url}/beat")
        shown, code = notify()
        assert (code, web.got) == (0, []), "without --test nothing is sent"
        assert [one["state"] for one in shown["channels"]] == ["ok"] * 3
        sent, code = notify("--test")
    assert (code, sent["well"]) == (0, True)
    assert {one["channel"]: one["state"] for one in sent["channels"]} == {
        "webhook": "sent",
        "command": "sent",
        "heartbeat": "sent",
    }
    (method, _, body), beat = web.got
    assert (method, beat[:2]) == ("POST", ("GET", "/beat"))
    assert "This is a test" in json.loads(body)["text"]


def test_a_channel_that_fails_is_named_with_its_fix_and_the_others_are_tried(project, monkeypatch):
    (project / "headroom.toml").write_text(TOML.replace('["true"]', '["sh", "-c", "exit 3"]'))
    with receivers.web() as web:
        web.status = 404
        monkeypatch.setenv("HOOK", f"{web.url}/hunter22")
        result = headroom("notify", "--test")
        found, code = notify("--test")
    assert result.exit_code == code == 1
    assert result.output.splitlines() == [
        "webhook, 127.0.0.1: notify.url_from: 127.0.0.1 answered 404",
        "  → correct the address in its environment variable",
        "command, sh: sh has ended with 3",
        "  → correct notify.command, or look at what is in the way",
    ]
    assert [one["state"] for one in found["channels"]] == ["failed", "failed"]
    assert "hunter22" not in result.output + json.dumps(found)


@pytest.mark.fast
class TestWithoutSending:
    def test_where_nobody_is_told_it_says_so(self, project):
        (project / "headroom.toml").write_text(TOML.partition("[notify]")[0])
        result = headroom("notify", "--test")
        assert (result.exit_code, "set url_from, email_to or command" in result.output) == (2, True)
        assert headroom("check").exit_code == 0

    def test_a_variable_that_is_not_set_is_told_by_all_commands(self, project, monkeypatch):
        monkeypatch.delenv("HOOK", raising=False)
        told = "the environment variable HOOK is not set"
        found, code = notify("--test")
        assert (code, found["channels"][1]["state"]) == (1, "sent")
        assert told in found["channels"][0]["problem"]
        assert found["channels"][0]["fix"] == "set it, or leave url_from out"
        checked = headroom("check")
        assert (checked.exit_code, f"line 5: notify.url_from: {told}" in checked.output) == (1, True)
        seen = json.loads(headroom("doctor", "--json").output)["findings"]
        (finding,) = (one for one in seen if one["what"] == "notify")
        assert (finding["state"], told in finding["found"]) == ("problem", True)
        monkeypatch.setenv("HOOK", "https://127.0.0.1/x")
        assert headroom("check").exit_code == 0

    @pytest.mark.parametrize(
        ("lines", "told"),
        [
            ("events = []", "notify.events: is empty"),
            ("events = ['alarms']", "did you mean 'alarm'?"),
            ("email_to = ['a@b.c']", "notify.email_sender: is needed with email_to"),
            ("smtp = 'mail:25'", "notify.email_to: is needed with smtp"),
            ("email_to=['a']\nemail_sender='d@b.c'\nsmtp='m:25'", "notify.email_to: 'a' is not an address"),
            ('email_to=["a@b.c\\nBcc: x"]\nemail_sender="d@b.c"\nsmtp="m:25"', "is not an address"),
            (
                "email_to=['a@b.c']\nemail_sender='d@b.c'\nsmtp='mail'",
                "notify.smtp: 'mail' is not of the form",
            ),
            ("password_from = 'P'", "notify.username_from: is needed"),
            ("username_from = 'U'\npassword_from = 'P'", "notify.password_from: goes with smtp"),
            (
                "email_to=['a@b.c']\nemail_sender='d@b.c'\nsmtp='m:25'\nsmtp_security='none'\n"
                "username_from='U'\npassword_from='P'",
                "notify.smtp_security: is none: the password would be sent unencrypted",
            ),
            ("url_from = 'https://hooks.example.com/x'", "must be the name of an environment variable"),
            ("repeat_after_s = -1.0", "notify.repeat_after_s: must be at least 0"),
        ],
    )
    def test_a_mistake_in_the_section_is_told(self, lines, told):
        with pytest.raises(WrongSettings) as caught:
            loading.parse(f"[notify]\n{lines}\n", environment={})
        assert any(told in str(one) for one in caught.value.mistakes), caught.value

    def test_the_secrets_that_settings_name_are_known(self):
        toml = '[store]\nurl_from = "STORE"\n[brokers]\nusername_from = "ME"\npassword_from = "PASSWORD"\n'
        given = {"STORE": "postgresql://long", "PASSWORD": "hunter22", "ME": "headroom", "OTHER": "x"}
        found = loading.secrets(loading.parse(toml, environment={}), given | {"MLFLOW_TRACKING_TOKEN": "t0k"})
        assert found == ("postgresql://long", "hunter22", "t0k")
