"""What the links between workers say about the network."""

from plsc_tf.parallel import link_speed


def link(worker, mb_per_s, round_trip_ms=0.1):
    return {
        "worker": worker,
        "to": (worker + 1) % 4,
        "mb_per_s": mb_per_s,
        "round_trip_ms": round_trip_ms,
    }


def test_the_slowest_and_the_fastest_are_told():
    found = [link(0, 1200.0), link(1, 950.4, 0.25), link(2, 1100.0)]
    assert link_speed.describe(found) == (
        "Links between neighbouring workers: 950 to 1,200 MB/s, round trips of 0.1 to "
        "0.25 ms."
    )


def test_a_link_is_slow_below_a_quarter_of_the_median():
    # The median of 100, 249, 1000 and 1000 is 624.5, a quarter of it 156.1.
    found = [link(0, 1000.0), link(1, 249.0), link(2, 100.0), link(3, 1000.0)]
    assert [one["worker"] for one in link_speed.slow(found)] == [2]


def test_equal_links_are_not_slow():
    assert not link_speed.slow([link(0, 10.0), link(1, 10.0)])
