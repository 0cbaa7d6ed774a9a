"""What the network between neighbouring workers does: they try it before training."""

import statistics
import time

from plsc_tf.parallel import connections

# Time for a worker to reach its neighbour, which listens already.
REACH_S = 10.0
# A message without delay takes the best of so many round trips.
ROUND_TRIPS = 8
# Sent to measure the bandwidth: so many bytes, or for so long.
CHUNK_BYTES = 1 << 18
MOST_BYTES = 1 << 23
MOST_S = 1.0
# A link is slow that has so small a share of what half of the links have.
SLOW_SHARE = 0.25

_DATA = b"x" * CHUNK_BYTES
_QUESTION, _ANSWER = b"?", b"!"


def answer(connection, hello):
    """Answers the questions of a neighbor that measures its link."""
    del hello
    while True:
        if connection.receive_frame(REACH_S) == _QUESTION:
            connection.send_frame(_ANSWER)


def measure(cluster):
    """Tries the link to the next worker, around the ring.

    Returns:
        {"worker": this one, "to": the next one, "round_trip_ms": …, "mb_per_s": …} or,
        when it cannot be reached, {"worker": …, "to": …, "problem": why}.
    """
    neighbour = (cluster.index + 1) % cluster.size
    link = {"worker": cluster.index, "to": neighbour}
    try:
        hello = {"purpose": "link"}
        connection = connections.connect(cluster, neighbour, hello, REACH_S)
    except connections.JoinError as error:
        return {**link, "problem": str(error)}
    try:
        round_trip_s = min(_ask(connection) for _ in range(ROUND_TRIPS))
        speed = _bytes_per_s(connection)
    except (OSError, EOFError) as error:
        there = connections.name(cluster, neighbour)
        return {**link, "problem": f"The connection to {there} broke: {error}."}
    finally:
        connection.close()
    return {
        **link,
        "round_trip_ms": round(1e3 * round_trip_s, 3),
        "mb_per_s": round(speed / 1e6, 1),
    }


def describe(links):
    """The slowest and the fastest of what `measure` has found, in words."""
    speeds = [link["mb_per_s"] for link in links]
    times = [link["round_trip_ms"] for link in links]
    return (
        f"Links between neighbouring workers: {min(speeds):,.0f} to {max(speeds):,.0f} "
        f"MB/s, round trips of {min(times):.3g} to {max(times):.3g} ms."
    )


def slow(links):
    """Those that hold up the others, which train as fast as the slowest link.

    Args:
        links: what `measure` has found on each worker.

    Returns:
        list of links with less than a quarter of the median bandwidth.
    """
    median = statistics.median(link["mb_per_s"] for link in links)
    return [link for link in links if link["mb_per_s"] < SLOW_SHARE * median]


def _ask(connection):
    """Returns the seconds until an answer comes."""
    start = time.monotonic()
    connection.send_frame(_QUESTION)
    connection.receive_frame(REACH_S)
    return time.monotonic() - start


def _bytes_per_s(connection):
    start = time.monotonic()
    sent = 0
    while sent < MOST_BYTES and time.monotonic() < start + MOST_S:
        connection.send_frame(_DATA)
        sent += len(_DATA)
    _ask(connection)
    return sent / (time.monotonic() - start)
