"""Groups whose workers are threads of this process: what they tell each other."""

import asyncio
import concurrent.futures
import contextlib
import dataclasses
import socket
import threading
import time

import pytest

from plsc_tf.parallel import group as groups, joining, wire
from plsc_tf.parallel.addresses import free_addresses, split
from plsc_tf.parallel.cluster import Cluster
from plsc_tf.parallel.group import Group, JoinError
from plsc_tf.parallel.joining import ChiefJoin

MOST_S = 60


def make_clusters(size, secret=b"known to the workers only"):
    addresses = free_addresses(size)
    return [Cluster(addresses, index, "test", secret) for index in range(size)]


def on_each(function, items):
    """Calls the function with each item, in threads; returns the results in order."""
    with concurrent.futures.ThreadPoolExecutor(len(items)) as pool:
        return list(pool.map(function, items, timeout=MOST_S))


@pytest.fixture
def clusters():
    return make_clusters(3)


@pytest.fixture
def workers(clusters):
    joined = on_each(lambda cluster: Group(cluster, timeout_s=30), clusters)
    yield joined
    on_each(Group.leave, joined)


def test_workers_join_exchange_values_and_leave(workers):
    for index, group in enumerate(workers):
        assert (group.index, group.size, group.is_chief) == (index, 3, index == 0)
    # Values come in the order of workers, as JSON makes them.
    values = [{"sha": "ab", "n": [1, 2.5, None]}, (), "three"]
    gathered = on_each(lambda g: g.gather("facts", values[g.index]), workers)
    assert gathered == [[values[0], [], "three"]] * 3
    others = on_each(lambda c: Group(c, timeout_s=30), make_clusters(2))
    for _ in range(2):
        on_each(Group.leave, others)
    assert [group.lost for group in others] == [None] * 2


def test_a_name_can_be_used_again_by_one_that_runs_ahead(workers):
    def four_times(group):
        time.sleep(0.1 * group.index)
        return [group.gather("step", 10 * group.index + i) for i in range(4)]

    assert on_each(four_times, workers) == [[[i, 10 + i, 20 + i] for i in range(4)]] * 3


def test_threads_gather_different_names_in_different_order(workers):
    names = ["saving", "loss", "data"]

    def gather_all(group):
        # Each worker brings its first name when the next one brings its last.
        order, futures = names[group.index :] + names[: group.index], {}
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            for name in order:
                futures[name] = pool.submit(group.gather, name, [name, group.index])
                time.sleep(0.02)
            return {name: future.result(MOST_S) for name, future in futures.items()}

    expected = {name: [[name, i] for i in range(3)] for name in names}
    assert on_each(gather_all, workers) == [expected] * 3


def test_values_of_megabytes(workers):
    hashes = [f"{i:064x}" for i in range(50_000)]
    assert on_each(lambda g: g.gather("hashes", hashes), workers) == [[hashes] * 3] * 3


def test_a_value_that_is_too_long_is_refused_at_once(workers, monkeypatch):
    monkeypatch.setattr(groups, "MAX_VALUE_BYTES", 1000)
    with pytest.raises(ValueError, match="'hashes' must have .*1,000 bytes.*=1,0"):
        workers[1].gather("hashes", "x" * 950)
    assert on_each(lambda g: g.gather("fits", 1), workers) == [[1, 1, 1]] * 3


def test_the_ports_can_be_listened_on_while_the_group_talks(workers, clusters):
    with contextlib.ExitStack() as stack:
        for address in clusters[0].addresses:
            server = stack.enter_context(socket.socket())
            # As TensorFlow's gRPC server.
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            server.bind(split(address))
            server.listen()
        assert on_each(lambda g: g.gather("after", 1), workers) == [[1, 1, 1]] * 3


# Who else may be on the port


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "another program"),
        (b"", "accepts connections but does not answer"),
    ],
)
def test_a_stranger_in_the_chiefs_place_is_an_error(clusters, answer, reason):
    with socket.create_server(split(clusters[0].address)) as server:
        guests = []

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    guests.append(server.accept()[0])
                    guests[-1].sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        with pytest.raises(JoinError, match=reason) as caught:
            Group(clusters[1], timeout_s=1)
        server.shutdown(socket.SHUT_RDWR)
    for guest in guests:
        guest.close()
    assert f"Worker 0 ({clusters[0].address})" in str(caught.value)


def test_another_version_is_refused(clusters):
    async def join():
        chief = asyncio.create_task(ChiefJoin(clusters[0], MOST_S).meet_all())
        await asyncio.sleep(0.1)
        place, key = clusters[0].address, clusters[0].key
        guest = await wire.Connection.open(place, MOST_S, key)
        guest.send(wire.encode({"protocol": wire.PROTOCOL + 1}))
        assert "different versions" in (await guest.receive())["problem"]
        guest.close()
        chief.cancel()

    asyncio.run(join())


def test_who_only_pretends_to_be_the_chief_keeps_no_worker(clusters, monkeypatch):
    """He listens before the chief does, and is gone when it starts."""
    monkeypatch.setattr(joining, "ATTEMPT_S", 0.5)

    async def join():
        with socket.create_server(split(clusters[0].address)) as server:
            worker = asyncio.create_task(joining.connect(clusters[1], MOST_S))
            caught, _ = await asyncio.to_thread(server.accept)
            caught.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            caught.sendall(wire.MAGIC + bytes(32))
        chief = asyncio.create_task(ChiefJoin(clusters[0], MOST_S).meet_all())
        (await worker).close()
        chief.cancel()
        caught.close()

    asyncio.run(join())


def test_messages_longer_than_allowed_end_the_connection():
    async def receive():
        reader = asyncio.StreamReader()
        reader.feed_data((wire.HELLO_BYTES + 1).to_bytes(8, "big"))
        one, other = socket.socketpair()
        _, writer = await asyncio.open_connection(sock=one)
        try:
            await wire.Connection(reader, writer, b"").receive()
        finally:
            writer.close()
            other.close()

    with pytest.raises(ValueError, match="too long"):
        asyncio.run(receive())


async def join_rest(chief, clusters):
    """Joins as the workers 1 and 2, and leaves; `chief` is the task of the chief."""
    guests = [await joining.connect(clusters[index], 30) for index in (1, 2)]
    members = await chief
    assert sorted(members) == [1, 2]
    for guest in guests:
        assert await guest.receive() == {"joined": True}
    for connection in (*guests, *members.values()):
        connection.close()


def test_strangers_are_ignored_while_the_workers_join(clusters, caplog):
    """Otherwise, one message of anybody on the network would end a training."""
    guess = [dataclasses.replace(one, secret=b"a guess") for one in clusters]

    async def join():
        chief = asyncio.create_task(ChiefJoin(clusters[0], MOST_S).meet_all())
        await asyncio.sleep(0.1)
        place = split(clusters[0].address)
        others = [(await asyncio.open_connection(*place))[1] for _ in range(2)]
        others[1].write(b"GET / HTTP/1.1\r\n\r\n")  # the first says nothing
        for stranger in guess[:2]:
            with pytest.raises(JoinError):
                await joining.connect(stranger, 0.1, "\x1b[2J")
        await join_rest(chief, clusters)
        for connection in others:
            connection.close()

    asyncio.run(join())
    # Once for each address: nobody can fill the log.
    assert caplog.text.count("does not know the secret of this cluster") == 1
    assert "\x1b" not in caplog.text


def test_strangers_by_the_hundred_do_not_use_up_the_open_files(clusters, monkeypatch):
    monkeypatch.setattr(joining, "ATTEMPT_S", 2 * MOST_S)
    monkeypatch.setattr(joining, "MAX_UNKNOWN", 100)

    async def join():
        chief = asyncio.create_task(ChiefJoin(clusters[0], MOST_S).meet_all())
        await asyncio.sleep(0.1)
        place = split(clusters[0].address)
        strangers = [await asyncio.open_connection(*place) for _ in range(150)]
        async with asyncio.timeout(MOST_S):
            for reader, _ in strangers[:50]:
                await reader.read()  # to its end
        await join_rest(chief, clusters)
        async with asyncio.timeout(MOST_S):
            for reader, _ in strangers:
                await reader.read()
        for _, writer in strangers:
            writer.close()

    asyncio.run(join())


# A flood of strangers made the chief take a connection that it had closed for a worker.
def test_a_connection_that_was_closed_is_no_worker(monkeypatch):
    clusters, dropped = make_clusters(2), []
    receive = wire.Connection.receive

    async def receive_late(connection):
        message = await receive(connection)
        if "index" in message and not dropped:
            dropped.append(await asyncio.open_connection(*split(clusters[0].address)))
            await dropped[0][0].readexactly(len(wire.MAGIC))
        return message

    monkeypatch.setattr(joining, "MAX_UNKNOWN", 1)
    monkeypatch.setattr(wire.Connection, "receive", receive_late)

    async def join_both():
        chief, _ = await asyncio.gather(*(joining.join(one, 5) for one in clusters))
        assert dropped and chief[1].is_open()

    asyncio.run(join_both())


def test_a_repeated_message_is_not_accepted():
    """Otherwise, who sees a worker join could join instead of it."""

    async def replay():
        recorded: asyncio.Future = asyncio.Future()
        outcome: asyncio.Future = asyncio.Future()

        async def record(reader, writer):
            writer.write(wire.MAGIC + bytes(32))
            recorded.set_result(await reader.read())
            writer.close()

        async def receive(reader, writer):
            connection = wire.Connection(reader, writer, b"secret")
            await connection.greet()
            received = asyncio.gather(connection.receive(), return_exceptions=True)
            outcome.set_result((await received)[0])
            connection.close()

        places = free_addresses(2)
        await asyncio.start_server(record, *split(places[0]))
        await asyncio.start_server(receive, *split(places[1]))
        worker = await wire.Connection.open(places[0], 9, b"secret")
        worker.send(wire.encode("hello"))
        worker.end_sending()
        _, writer = await asyncio.open_connection(*split(places[1]))
        writer.write(await recorded)
        result = await outcome
        writer.close()
        return result

    assert isinstance(asyncio.run(replay()), wire.SignatureError)


# Known: what a worker of another cluster sends could be passed on to this one.
@pytest.mark.parametrize("known", [False, True])
def test_a_worker_without_the_secret_is_told_nothing(clusters, caplog, known):
    names = [one.address.replace("127.0.0.1", "localhost") for one in clusters]
    changed = {"addresses": names} if known else {"secret": b"a guess"}

    async def join():
        chief = asyncio.create_task(ChiefJoin(clusters[0], 3).meet_all())
        with pytest.raises(JoinError, match="could not reach .* closed the conn"):
            await joining.join(dataclasses.replace(clusters[1], **changed), 1)
        silent = await asyncio.open_connection(*split(clusters[0].address))
        with pytest.raises(JoinError, match="Worker 1 .* did not join"):
            await chief
        return silent

    asyncio.run(join())
    # A traceback for each stranger hid why the workers could not join.
    assert "Traceback" not in caplog.text


def test_two_with_the_same_index_are_an_error(clusters):
    async def join():
        chief = asyncio.create_task(ChiefJoin(clusters[0], 30).meet_all())
        guests = [await joining.connect(clusters[1], 30) for _ in range(2)]
        with pytest.raises(JoinError, match="Two processes claim to be Worker 1"):
            await chief
        for guest in guests:
            assert "Two processes" in (await guest.receive())["problem"]
            guest.close()

    asyncio.run(join())


def test_one_that_has_gone_may_come_again(clusters):
    async def join():
        chief = asyncio.create_task(ChiefJoin(clusters[0], 30).meet_all())
        for _ in range(2):
            (await joining.connect(clusters[1], 30)).close()
        await join_rest(chief, clusters)

    asyncio.run(join())


def test_a_port_that_becomes_free_within_seconds_is_taken(clusters):
    threading.Timer(0.5, socket.create_server(split(clusters[1].address)).close).start()
    joining.listen(clusters[1]).close()
