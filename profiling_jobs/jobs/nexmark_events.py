"""The events of Nexmark's auction site: people register, open auctions and bid.

One topic carries all three, as in Beam's generator, after which this is modelled: of each fifty events the
first is a person, the next three are auctions, the rest are bids (2 / 6 / 92 %), of about 200, 500 and 100
bytes. People and auctions are numbered in order of appearance; who is named in an auction or bid is
chosen among the recent ones, and may be a few numbers ahead, so that a record can precede what it names.

With `hot_keys` every second bid goes to one hot auction, three quarters of the bids come from one hot bidder
and three quarters of the auctions from one hot seller; who is hot changes with every hundredth newcomer.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from . import json_events
from .json_events import RATE_RPS, Whole

PERSON, AUCTION = 1, 3  # of each fifty events; the other 46 are bids (StreamBed §8.1)
CYCLE = 50
PERSON_BYTES, AUCTION_BYTES, BID_BYTES = 200, 500, 100  # StreamBed §8.1
FIRST_ID = 1000  # Beam: ids below are easily mistaken for counts
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")  # Beam
CITIES = "Phoenix Los-Angeles San-Francisco Boise Portland Bend Redmond Seattle Kent Cheyenne".split()  # Beam
FIRST_NAMES = "Peter Paul Luke John Saul Vicky Kate Julie Sarah Deiter Walter".split()  # Beam
LAST_NAMES = "Shultz Abrams Spencer White Bartels Walton Smith Jones Noris".split()  # Beam
CATEGORIES = (10, 11, 12, 13, 14)  # Beam
IN_FLIGHT = 100  # Beam: bids go to the last hundred auctions
ACTIVE = 1000  # Beam: the last thousand people sell and bid
LEAD = 10  # Beam: this many are known before their own record arrives
HOT_EVERY = 100  # Beam
HOT_BIDS, HOT_BIDDERS, HOT_SELLERS = 1 / 2, 3 / 4, 3 / 4  # Beam: 1 - 1/2, 1 - 1/4, 1 - 1/4


def events(
    *, seed: int, count: int, start_s: float, hot_keys: bool = False, rate_rps: float = RATE_RPS
) -> pa.Table:
    """The first `count` events of the site, from `start_s` on. The key says whom or what they are about."""
    random = np.random.default_rng(seed)
    arrived = json_events.arrivals_ms(count=count, start_s=start_s, rate_rps=rate_rps)
    happened = json_events.event_times_ms(arrived, random)
    number = np.arange(count)
    place = number % CYCLE
    newest_person = number // CYCLE
    newest_auction = number // CYCLE * AUCTION + np.minimum(place, AUCTION) - 1

    of_people = np.flatnonzero(place < PERSON)
    of_auctions = np.flatnonzero((place >= PERSON) & (place < PERSON + AUCTION))
    of_bids = np.flatnonzero(place >= PERSON + AUCTION)
    hot = hot_keys * np.array([HOT_SELLERS, HOT_BIDS, HOT_BIDDERS])
    sellers = _recent(newest_person[of_auctions], within=ACTIVE, hot=hot[0], hot_offset=0, random=random)
    bid_on = _recent(newest_auction[of_bids], within=IN_FLIGHT, hot=hot[1], hot_offset=0, random=random)
    # The hot bidder is not the hot seller.
    bidders = _recent(newest_person[of_bids], within=ACTIVE, hot=hot[2], hot_offset=1, random=random)

    people = FIRST_ID + newest_person[of_people]
    auctions = FIRST_ID + newest_auction[of_auctions]
    values = [
        _people(people, happened[of_people], random),
        _auctions(auctions, sellers, happened[of_auctions], random),
        _bids(bid_on, bidders, happened[of_bids], random),
    ]
    order = np.argsort(np.concatenate([of_people, of_auctions, of_bids]), kind="stable")
    keys = np.concatenate([people, auctions, bid_on])[order]
    return json_events.table(keys, pa.concat_arrays(values).take(pa.array(order)), arrived)


def _recent(newest: Whole, *, within: int, hot: float, hot_offset: int, random: np.random.Generator) -> Whole:
    """Ids among the last `within` and the next few; a share `hot` of them is the one hot id of its time."""
    newest = np.maximum(newest, 0)
    oldest = np.maximum(newest + 1 - within, 0)
    chosen = oldest + (random.random(newest.size) * (newest + 1 + LEAD - oldest)).astype(np.int64)
    star = newest // HOT_EVERY * HOT_EVERY + hot_offset
    return FIRST_ID + np.where(random.random(newest.size) < hot, star, chosen)


def _people(ids: Whole, happened: Whole, random: np.random.Generator) -> pa.Array:
    names = [f"{first} {last}" for first in FIRST_NAMES for last in LAST_NAMES]
    opened = json_events.encode(
        happened,
        {
            "kind": "person",
            "id": ids,
            "name": _one_of(names, ids.size, random),
            "email": _one_of([name.lower().replace(" ", "@") + ".com" for name in names], ids.size, random),
            "credit_card": random.integers(10**15, 10**16, ids.size),
            "city": _one_of(CITIES, ids.size, random),
            "state": _one_of(STATES, ids.size, random),
        },
        more=True,
    )
    return json_events.padded(opened, to_bytes=PERSON_BYTES, random=random)


def _auctions(ids: Whole, sellers: Whole, happened: Whole, random: np.random.Generator) -> pa.Array:
    initial = _prices(ids.size, random)
    opened = json_events.encode(
        happened,
        {
            "kind": "auction",
            "id": ids,
            "seller": sellers,
            "category": random.choice(CATEGORIES, ids.size),
            "item": json_events.texts(random.integers(10, 20, ids.size), random),
            "description": json_events.texts(random.integers(50, 100, ids.size), random),
            "initial_bid": initial,
            "reserve": initial + _prices(ids.size, random),
            "expires": happened + random.integers(1_000, 20_000, ids.size),
        },
        more=True,
    )
    return json_events.padded(opened, to_bytes=AUCTION_BYTES, random=random)


def _bids(auctions: Whole, bidders: Whole, happened: Whole, random: np.random.Generator) -> pa.Array:
    opened = json_events.encode(
        happened,
        {"kind": "bid", "auction": auctions, "bidder": bidders, "price": _prices(auctions.size, random)},
        more=True,
    )
    return json_events.padded(opened, to_bytes=BID_BYTES, random=random)


def _prices(count: int, random: np.random.Generator) -> Whole:
    """Cents, evenly spread over six orders of magnitude (Beam)."""
    return np.rint(10 ** (random.random(count) * 6) * 100).astype(np.int64)


def _one_of(choices: list[str] | tuple[str, ...], count: int, random: np.random.Generator) -> pa.Array:
    return pa.array(choices).take(pa.array(random.integers(0, len(choices), count)))
