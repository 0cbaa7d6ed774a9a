"""A server that stops answers the requests that have begun."""

import http.client
import json
import threading

import numpy as np
from server_tools import PLSC, b64, connect, is_listened_at, served, wait_for


def test_what_has_begun_is_answered(model_dir, pictures, expected):
    with served(model_dir, grpc_port=0) as server:
        body = json.dumps({"base64_string": [b64(one) for one in pictures] * 40})
        request = f"POST {PLSC} HTTP/1.1\r\nHost: [::1]\r\nContent-Length: {len(body)}"
        request = f"{request}\r\n\r\n{body}".encode()
        links = [connect(server, request[:-5]) for _ in range(8)]
        stopping = threading.Thread(target=server["server"].stop)
        stopping.start()
        wait_for(lambda: not is_listened_at(server["port"]))
        # Their bodies end only now.
        for link in links:
            link.sendall(request[-5:])
        answers = [read(link) for link in links]
        stopping.join()
        for link in links:
            link.close()
    for status, answer in answers:
        assert status == 200
        rows = [row["embedding"] for row in answer["instance"]]
        np.testing.assert_allclose(rows[:3], expected, atol=1e-5)


def read(link):
    response = http.client.HTTPResponse(link)
    response.begin()
    assert response.headers["Connection"] == "close"
    return response.status, json.loads(response.read())
