"""The outbox: what fails is tried again what hangs delays nobody else, what is lost is counted."""

import threading
from dataclasses import replace

import pytest
import waiting

from models.errors import Misconfigured, NotReady
from pipelines.notify import outbox as outbox_module
from pipelines.notify.channels import HEARTBEAT
from pipelines.notify.messages import Message
from pipelines.notify.outbox import Outbox

MESSAGE = Message("alarm", "orders", "no metrics", 1_763_474_400.0)


class Receiver:
    """Answers with the next of `answers`, and with yes when there are no more."""

    where = "there"

    def __init__(self, *answers):
        self.answers, self.got, self.tries = list(answers), [], 0
        self.free = threading.Event()
        self.free.set()

    def send(self, message):
        self.tries += 1
        self.free.wait(60.0)
        if self.answers and (answer := self.answers.pop(0)) is not None:
            raise answer
        self.got.append(message)


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(outbox_module, "AGAIN_S", 0.001)
    monkeypatch.setattr(outbox_module, "SLACK_S", 0.0)


@pytest.fixture
def said():
    return []


@pytest.fixture
def opened(said):
    """An outbox with these channels."""
    return lambda timeout_s=30.0, **channels: Outbox(channels, timeout_s=timeout_s, say=said.append)


def numbered(number):
    return replace(MESSAGE, text=str(number))


def test_every_channel_gets_every_message_in_order(opened, said):
    one, other = Receiver(), Receiver()
    with opened(one=one, other=other) as outbox:
        for number in range(5):
            outbox.put(numbered(number))
        waiting.until(lambda: len(one.got) == len(other.got) == 5)
    assert one.got == other.got == [numbered(number) for number in range(5)]
    assert said == []


def test_what_fails_is_tried_again_and_said_once(opened, said):
    shaky = Receiver(NotReady("it is away"), NotReady("it is away"), NotReady("it is still away"))
    with opened(webhook=shaky) as outbox:
        outbox.put(MESSAGE)
        waiting.until(lambda: len(said) == 2)
    assert (shaky.got, shaky.tries) == ([MESSAGE], 4)
    assert said == [
        "notify: webhook: it is away; each message is tried again for 15 min",
        "notify: webhook: works again",
    ]


def test_what_is_refused_is_not_tried_again_and_counted(opened, said):
    strict = Receiver(Misconfigured("notify.url_from", "gone: correct it"), None)
    with opened(webhook=strict) as outbox:
        outbox.put(numbered(1))
        outbox.put(numbered(2))
        waiting.until(lambda: len(said) == 2)
    assert (strict.got, strict.tries) == ([numbered(2)], 2)
    assert said[1] == "notify: webhook: works again; 1 message could not be sent"


def test_what_fails_for_too_long_is_given_up_and_counted(opened, said, monkeypatch):
    monkeypatch.setattr(outbox_module, "GIVE_UP_S", 0.0)
    dead = Receiver(*[NotReady("it is away")] * 3)
    with opened(webhook=dead) as outbox:
        for number in range(4):
            outbox.put(numbered(number))
        waiting.until(lambda: len(said) == 2)
    assert dead.got == [numbered(3)]
    assert said[1] == "notify: webhook: works again; 3 messages could not be sent"


def test_an_error_that_nobody_foresaw_ends_nothing(opened, said):
    odd = Receiver(RuntimeError("with hunter22 in it"))
    with opened(webhook=odd) as outbox:
        outbox.put(MESSAGE)
        waiting.until(lambda: odd.got)
    assert "RuntimeError" in said[0]
    assert "hunter22" not in said[0]


def test_one_that_hangs_keeps_neither_the_others_nor_who_puts(opened, monkeypatch):
    monkeypatch.setattr(outbox_module, "CLOSE_S", 0.0)
    stuck, well = Receiver(), Receiver()
    stuck.free.clear()
    with opened(timeout_s=0.02, stuck=stuck, well=well) as outbox:
        for number in range(3):
            outbox.put(numbered(number))
        waiting.until(lambda: len(well.got) == 3)
        assert stuck.tries == 1, "one attempt at a time"
        stuck.free.set()
        waiting.until(lambda: {one.text for one in stuck.got} == {"0", "1", "2"})


def test_the_queue_is_bounded_and_what_does_not_fit_is_counted(opened, said, monkeypatch):
    monkeypatch.setattr(outbox_module, "MOST_WAITING", 3)
    slow = Receiver()
    slow.free.clear()
    with opened(webhook=slow) as outbox:
        outbox.put(numbered(0))
        waiting.until(lambda: slow.tries == 1)
        for number in range(1, 10):
            outbox.put(numbered(number))
        slow.free.set()
        waiting.until(lambda: slow.got and slow.got[-1] == numbered(9))
    assert [one.text for one in slow.got] == ["0", "8", "9"]
    assert said == ["notify: webhook: 7 messages could not be sent"]


def test_only_the_newest_ping_is_sent_and_only_to_the_switch(opened, said):
    switch, people = Receiver(), Receiver()
    switch.free.clear()
    with opened(**{HEARTBEAT: switch, "webhook": people}) as outbox:
        outbox.beat(1.0)
        waiting.until(lambda: switch.tries == 1)
        outbox.beat(2.0)
        outbox.beat(3.0)
        switch.free.set()
        waiting.until(lambda: len(switch.got) == 2)
        outbox.put(MESSAGE)
        waiting.until(lambda: people.got)
    assert [one.at_s for one in switch.got] == [1.0, 3.0]
    assert people.got == [MESSAGE]


def test_without_a_switch_nothing_is_pinged(opened):
    people = Receiver()
    with opened(webhook=people) as outbox:
        outbox.beat(1.0)
        outbox.put(MESSAGE)
    assert people.got == [MESSAGE]


def test_what_is_left_at_the_end_is_sent_or_counted(opened, said, monkeypatch):
    dead, well = Receiver(*[NotReady("it is away")] * 99), Receiver()
    monkeypatch.setattr(outbox_module, "AGAIN_S", 3600.0)
    with opened(dead=dead, well=well) as outbox:
        for number in range(2):
            outbox.put(numbered(number))
    assert len(well.got) == 2
    assert said[-1] == "notify: dead: 2 messages could not be sent"
