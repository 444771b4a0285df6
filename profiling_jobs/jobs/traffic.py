"""The speed of the traffic on each route (traffic monitoring, after Daedalus §4.1.3).

Vehicles outside a radius of interest are left out; the others' speeds are averaged per vehicle in tumbling
windows of ten seconds, and each average is enriched with the route nearest to where the vehicle was then.
Within a city the earth is flat: distances are taken on a plane, which is off by less than 0.1 %.

    events   vehicle, lat, lon, speed_kmh, event_time; about 100 bytes
    results  vehicle, speed_kmh, readings, route, route_distance_m, window_end
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from . import json_events
from .json_events import RATE_RPS, Decimals
from .json_frames import as_records, epoch_ms, parsed, watermarked

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

    from ..topics import Topics

WINDOW_S = 10  # Daedalus §4.1.3
CENTRE_LAT, CENTRE_LON = 50.9375, 6.9603  # Cologne, where the traces of the papers come from
RADIUS_M = 3_000.0  # judgement: the inner city
METRES_PER_LAT = 111_195.0  # one degree on a sphere of 6 371 km
METRES_PER_LON = METRES_PER_LAT * math.cos(math.radians(CENTRE_LAT))
ROUTES = 32  # judgement: as many as there are arterial roads
VEHICLES = 2_000  # judgement: at the usual rate each reports every other second
SPREAD_M = 4_000.0  # judgement: half of this square lies outside the radius
HOT_SHARE = 0.5  # judgement: every second reading is of the first vehicle


def build(spark: SparkSession, topics: Topics) -> DataStreamWriter:
    """The job, ready to be started."""
    from pyspark.sql import functions as F

    schema = "vehicle STRING, lat DOUBLE, lon DOUBLE, speed_kmh DOUBLE"
    readings = parsed(topics.read("events"), schema)
    near = readings.where(_metres_between(CENTRE_LAT, CENTRE_LON) <= RADIUS_M)
    window = F.window("event_time", f"{WINDOW_S} seconds").alias("window")
    averages = (
        watermarked(near)
        .groupBy(window, "vehicle")
        .agg(
            F.avg("speed_kmh").alias("speed_kmh"),
            F.count("*").alias("readings"),
            F.avg("lat").alias("lat"),
            F.avg("lon").alias("lon"),
        )
    )
    enriched = averages.withColumn("nearest", _nearest_route()).select(
        "vehicle",
        "speed_kmh",
        "readings",
        F.col("nearest.name").alias("route"),
        F.col("nearest.metres").alias("route_distance_m"),
        epoch_ms(F.col("window.end")).alias("window_end"),
    )
    return topics.write("results", as_records(enriched, key="vehicle"))


def routes() -> tuple[tuple[str, float, float], ...]:
    """Name, latitude and longitude of every route: always the same, spread evenly over the disc."""
    golden = math.pi * (3 - math.sqrt(5))
    found = []
    for number in range(ROUTES):
        metres, angle = RADIUS_M * math.sqrt((number + 0.5) / ROUTES), number * golden
        lat = CENTRE_LAT + metres * math.sin(angle) / METRES_PER_LAT
        lon = CENTRE_LON + metres * math.cos(angle) / METRES_PER_LON
        found.append((f"route-{number:02d}", lat, lon))
    return tuple(found)


def events(
    *, seed: int, count: int, start_s: float, hot_keys: bool = False, rate_rps: float = RATE_RPS
) -> pa.Table:
    """Readings of vehicles around a place each, keyed by vehicle."""
    random = np.random.default_rng(seed)
    arrived = json_events.arrivals_ms(count=count, start_s=start_s, rate_rps=rate_rps)
    vehicles = random.integers(0, VEHICLES, count)
    if hot_keys:
        vehicles[random.random(count) < HOT_SHARE] = 0
    places = random.uniform(-SPREAD_M, SPREAD_M, (2, VEHICLES))
    places[:, 0] /= SPREAD_M  # the hot one is within the radius
    north, east = places[:, vehicles] + random.normal(0, 50, (2, count))
    spelt = pa.array([f"vehicle-{number:05d}" for number in range(VEHICLES)]).take(pa.array(vehicles))
    values = json_events.encode(
        json_events.event_times_ms(arrived, random),
        {
            "vehicle": spelt,
            "lat": Decimals(CENTRE_LAT + north / METRES_PER_LAT, digits=6),
            "lon": Decimals(CENTRE_LON + east / METRES_PER_LON, digits=6),
            "speed_kmh": random.integers(0, 121, count),
        },
    )
    return json_events.table(spelt, values, arrived)


def _nearest_route() -> Column:
    """The nearest route's distance and name. In the JVM, without a join: the routes are a constant."""
    from pyspark.sql import functions as F

    distances = [
        F.struct(_metres_between(lat, lon).alias("metres"), F.lit(name).alias("name"))
        for name, lat, lon in routes()
    ]
    return F.least(*distances)


def _metres_between(lat: float, lon: float) -> Column:
    from pyspark.sql import functions as F

    return F.hypot((F.col("lat") - lat) * METRES_PER_LAT, (F.col("lon") - lon) * METRES_PER_LON)
