"""Bad requests are refused, one by one, while others are served."""

import concurrent.futures
import io
import re

import bad_requests
import PIL.Image
import pytest
from server_tools import PLSC, ask, asking, assert_right, b64, resources, wait_for


def attack(port, numbers):
    """Sends bad requests; returns those with a wrong answer."""
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        sent = pool.map(lambda number: bad_requests.send(port, number), numbers)
        return list(filter(None, sent))


@pytest.mark.parametrize("count", [180, pytest.param(600, marks=pytest.mark.slow)])
def test_bad_requests(server, pictures, expected, count):
    port = server["port"]
    attack(port, range(10**6, 10**6 + 90))  # What is allocated once.
    rss, files = resources(server)
    with asking(server, pictures) as answers:
        links = [bad_requests.open_slow(port, n) for n in range(12)]
        wrong = attack(port, range(count))
        late = [bad_requests.status_of(link) for link in links]
        for link in links:
            link.close()
    assert not wrong
    assert len(answers) > 3
    assert_right(answers, expected)
    assert set(late) <= {408, None}
    assert 408 in late
    # Connections are not left open, and memory does not grow.
    wait_for(lambda: resources(server)[1] <= files + 4)
    assert resources(server)[0] < rss + 60
    assert server["process"].poll() is None
    assert ask(server, "GET", "/healthz")[0] == 200


def test_who_does_not_read_is_dropped(server):
    link = bad_requests.open_reader_who_sleeps(server["port"])
    # The only connection left is the one that asks.
    alone = "\nplsc_tf_connections 1.0"
    wait_for(lambda: alone in ask(server, "GET", "/metrics")[1])
    link.close()


def encoded(file_format, size, **options):
    file = io.BytesIO()
    PIL.Image.new("L", size).save(file, file_format, **options)
    return file.getvalue()


OTHER_FRAME = PIL.Image.new("L", (800, 800), 9)
TOO_LARGE = {
    "too many": [encoded("PNG", (8, 8))] * 41,
    "too long": [encoded("JPEG", (8, 8)) + bytes(200_000)],
    "JPEG of 2 MP": [encoded("JPEG", (1000, 2000))],
    "PNG of 9 MP": [encoded("PNG", (3000, 3000))],
    "GIF of 2 frames": [
        encoded("GIF", (800, 800), save_all=True, append_images=[OTHER_FRAME])
    ],
}


@pytest.mark.parametrize("images", TOO_LARGE.values(), ids=TOO_LARGE)
def test_too_many_and_too_large_images_are_refused(server, images):
    body = {"base64_string": [b64(image) for image in images]}
    status, answer, _ = ask(server, "POST", PLSC, body)
    assert status == 413 and re.search("at most 40|the limit is", answer["error"])
