# SPDX-License-Identifier: Apache-2.0
"""examples/serve, built as an outside project: many connections, bad requests, limits, and a clean stop.

HKT_LOAD_SECONDS: how long the connections are kept busy (default: 10)."""
import http.client
import json
import os
import random
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from pathlib import Path

import pytest
from program import environment, run
from test_predict import lines

import hkt

root = Path(__file__).resolve().parents[2]
SECONDS, CONNECTIONS = float(os.environ.get("HKT_LOAD_SECONDS", 10)), 200
TEXTS = lines(100, seed=7)


def has_library():
    try:
        return subprocess.run(["pkg-config", "--exists", "cpp-httplib"]).returncode == 0
    except FileNotFoundError:
        return False


pytestmark = pytest.mark.skipif(not has_library(), reason="libcpp-httplib-dev and pkg-config are not installed")


@pytest.fixture(scope="module")
def program(tmp_path_factory, build_folder):
    folder = tmp_path_factory.mktemp("serve")
    for command in (["cmake", "--install", build_folder, "--prefix", folder / "prefix"],
                    ["cmake", "-G", "Ninja", "-S", root / "examples" / "serve", "-B", folder / "build", "-DCMAKE_BUILD_TYPE=Release",
                     f"-DCMAKE_PREFIX_PATH={folder / 'prefix'}"], ["cmake", "--build", folder / "build"]):
        process = subprocess.run(command, capture_output=True, text=True)
        assert process.returncode == 0, process.stdout + process.stderr
    return folder / "build" / "serve"


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


class Server:
    def __init__(self, program):
        self.port = free_port()
        self.process = subprocess.Popen([program, root / "models" / "imdb-hkt", str(self.port)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True, env=environment())
        assert self.process.stdout.readline() == f"listening on http://127.0.0.1:{self.port}\n"

    def get(self, path):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=60) as answer:
            return answer.read().decode()

    def metrics(self):
        return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in self.get("/metrics").splitlines())}

    def post(self, body, headers=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        try:
            return ask(connection, body, headers)
        finally:
            connection.close()

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        out, errors = self.process.communicate(timeout=60)
        return self.process.returncode, out + errors


def ask(connection, body, headers=None):
    connection.request("POST", "/predict", body if isinstance(body, bytes | str) else json.dumps(body), headers or {})
    answer = connection.getresponse()
    content = answer.read()
    return answer.status, json.loads(content) if content else None


@pytest.fixture
def server(program):
    server = Server(program)
    yield server
    if server.process.poll() is None:
        server.process.kill()
        server.process.communicate()


@pytest.fixture(scope="module")
def wanted():
    process = run("predict", root / "models" / "imdb-hkt", "--json", "--device", "cpu", input="\n".join(TEXTS))
    answers = [json.loads(line) for line in process.stdout.splitlines()]
    assert len({round(answer["probabilities"]["neg"], 3) for answer in answers}) > 50, "answers alike could be mixed up unnoticed"
    return answers


def agrees(answer, wanted):
    return answer["label"] == wanted["label"] and answer["probabilities"] == pytest.approx(wanted["probabilities"], abs=1e-4)


def test_it_answers(server, wanted):
    status, answer = server.post({"texts": [*TEXTS[:3], "", "a\0b"]})
    assert status == 200 and len(answer["predictions"]) == 5
    assert all(agrees(answer["predictions"][i], wanted[i]) for i in range(3))
    assert "empty" in answer["predictions"][3]["error"] and "byte 0" in answer["predictions"][4]["error"]
    assert server.post({"texts": []}) == (200, {"predictions": []})
    assert server.get("/health") == "ok\n"
    assert hkt.Predictor(root / "models" / "imdb-hkt").labels == sorted(answer["predictions"][0]["probabilities"])
    metrics = server.metrics()
    assert metrics["hkt_texts_total"] == 5 and metrics["hkt_waiting_texts"] == 0 and metrics['hkt_requests_total{status="2xx"}'] == 3


class Client(threading.Thread):
    """One connection, kept, with a request as soon as the last one is answered."""

    def __init__(self, port, number, wanted, end):
        super().__init__()
        self.port, self.pick, self.wanted, self.end = port, random.Random(number), wanted, end
        self.requests = self.texts = 0
        self.trouble = None

    def run(self):
        try:
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
            while time.monotonic() < self.end or self.requests == 0:
                chosen = [self.pick.randrange(len(TEXTS)) for _ in range(self.pick.randint(1, 4))]
                status, answer = ask(connection, {"texts": [TEXTS[i] for i in chosen]})
                assert status == 200, status
                for i, own in zip(chosen, answer["predictions"], strict=True):
                    assert agrees(own, self.wanted[i]), f"text {i} got the answer of another: {own}"
                self.requests, self.texts = self.requests + 1, self.texts + len(chosen)
            connection.close()
        except Exception as error:  # noqa: BLE001, reported by the test
            self.trouble = f"after {self.requests} requests: {error!r}"


def test_no_answer_is_lost_or_mixed_up(server, wanted):
    end = time.monotonic() + SECONDS
    clients = [Client(server.port, number, wanted, end) for number in range(CONNECTIONS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
    assert [client.trouble for client in clients if client.trouble] == []
    metrics, requests, texts = server.metrics(), sum(client.requests for client in clients), sum(client.texts for client in clients)
    print(f"{requests} requests with {texts} texts on {CONNECTIONS} connections, in {metrics['hkt_batches_total']:.0f} batches")
    assert requests >= CONNECTIONS and metrics["hkt_texts_total"] == texts and metrics['hkt_requests_total{status="2xx"}'] == requests
    assert metrics["hkt_batches_total"] < requests / 4, "concurrent requests were not computed together"
    assert server.stop() == (0, "")


BAD = ["", "x", "[]", "{}", '{"texts": "x"}', '{"texts": [1]}', '{"texts": [null]}', '{"texts": {"a": "b"}}', "[" * 100_000, '{"texts": ["\\ud800"]}',
       b'{"texts": ["\xff"]}', '{"texts": ["x"]', json.dumps({"texts": ["x"] * 257})]


@pytest.mark.parametrize("body", BAD, ids=range(len(BAD)))
def test_a_bad_body_is_refused(server, body):
    status, answer = server.post(body)
    assert status == 400 and "texts" in answer["error"]


def test_limits(server, wanted):
    assert server.post(json.dumps({"texts": ["x" * (1 << 20)]}))[0] == 413
    many, statuses = json.dumps({"texts": ["a long text " * 10] * 256}), []
    callers = [threading.Thread(target=lambda: statuses.append(server.post(many)[0])) for _ in range(40)]  # more than the queue holds
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(statuses) == 40 and set(statuses) == {200, 503}
    status, answer = server.post({"texts": TEXTS[:1]})
    assert status == 200 and agrees(answer["predictions"][0], wanted[0])


def raw_requests():
    pick = random.Random(3)
    good = b'POST /predict HTTP/1.1\r\nHost: a\r\nContent-Length: 17\r\n\r\n{"texts": ["hm"]}'
    yield from (b"", b"\r\n\r\n", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /" + b"a" * 20_000 + b" HTTP/1.1\r\n\r\n", b"\0" * 5000)
    yield b"POST /predict HTTP/1.1\r\nContent-Length: -5\r\n\r\nhello"
    yield b"POST /predict HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\nhello"
    yield b"POST /predict HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\nx"
    yield b"POST /predict HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\nx\r\nzz\r\n"
    yield b"POST /predict HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=\r\nContent-Length: 30\r\n\r\n--\r\n--\r\n--\r\n--\r\n--\r\n--\r\n--\r\n--"
    yield b"POST /predict HTTP/1.1\r\nContent-Encoding: gzip\r\nContent-Length: 5\r\n\r\n\x1f\x8b\x08\x00\x00"
    yield b"GET /health HTTP/1.1\r\nRange: bytes=" + b"0-0," * 1500 + b"\r\n\r\n"
    yield b"GET /health HTTP/1.1\r\n" + b"A: b\r\n" * 20_000 + b"\r\n"
    yield b"BREW /predict HTTP/1.1\r\n\r\n"
    for _ in range(150):
        damaged = bytearray(good)
        for _ in range(pick.randint(1, 8)):
            place = pick.randrange(len(damaged))
            damaged[place : place + pick.randint(0, 3)] = bytes(pick.randrange(256) for _ in range(pick.randint(0, 3)))
            damaged = damaged or bytearray(b"x")
        yield bytes(damaged[: pick.randint(1, len(damaged))] if pick.random() < 0.3 else damaged)


def test_no_request_kills_it(server, wanted):
    for raw in raw_requests():
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
            try:
                connection.sendall(raw)
                connection.shutdown(socket.SHUT_WR)
                while connection.recv(65536):
                    pass
            except OSError:
                pass  # it closed first
        assert server.process.poll() is None, f"killed by {raw[:100]!r}"
    abandoned = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(50)]
    for connection in abandoned:
        connection.sendall(b'POST /predict HTTP/1.1\r\nContent-Length: 17\r\n\r\n{"texts": ["hm"]}')
        connection.close()  # nobody waits for the answer
    status, answer = server.post({"texts": TEXTS[:1]})
    assert status == 200 and agrees(answer["predictions"][0], wanted[0])
    assert server.stop() == (0, "")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_stop_answers_what_has_begun(server, number):
    many, found = json.dumps({"texts": ["a long text " * 40] * 200}), []
    callers = [threading.Thread(target=lambda: found.append(server.post(many))) for _ in range(4)]
    for caller in callers:
        caller.start()
    end = time.monotonic() + 60
    while server.metrics()["hkt_waiting_texts"] < 800 and time.monotonic() < end:
        time.sleep(0.01)
    code, printed = server.stop(number)
    for caller in callers:
        caller.join()
    assert code == 0 and printed == "" and [status for status, _ in found] == [200] * 4
    assert all(len(answer["predictions"]) == 200 for _, answer in found)


def test_what_cannot_be_served_is_said(program, server):
    def refused(*arguments):
        process = subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, timeout=60, env=environment())
        assert process.returncode == 1 and process.stderr.startswith("serve: ") and len(process.stderr.splitlines()) == 1
        return process.stderr

    assert "usage" in refused()
    assert "not a folder" in refused("nowhere")
    assert "in use" in refused(root / "models" / "imdb-hkt", server.port)
