"""Forecasts that cover what comes, and messages that arrive or say why not: a real server, real programs, real files."""

import fcntl
import json
import logging
import math
import os
import random
import socket
import stat
import sys
import threading
import time
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dither.core.errors import InputError
from dither.ledger import alerts
from dither.ledger.alerts import Command, File, Log, Webhook, forecast, send

START = datetime(2026, 1, 1, tzinfo=UTC)
MESSAGE = {"entry": 7, "hash": "ab" * 32, "text": "limit L1 of account 'acme' is 80 % used"}


def days(count, share=0.01):
    return [(START + timedelta(days=i), share * (i + 1)) for i in range(count)]


# ------------------------------------------------------------------------------------------------ forecast


def test_an_even_trend_goes_on():
    found = forecast(days(40), now=START + timedelta(days=39))
    assert found.date == START + timedelta(days=99)
    assert (found.earliest, found.latest) == (found.date, found.date)
    assert found.per_day == pytest.approx(0.01)
    assert str(found) == "about 2026-04-10, 90 % between 2026-04-10 and 2026-04-10"
    assert json.loads(json.dumps(found.to_dict()))["date"] == "2026-04-10T00:00:00+00:00"


def test_a_pause_moves_the_date():
    late = [forecast(days(40), now=START + timedelta(days=39 + more)) for more in (0, 10, 20, 40)]
    assert [f.date for f in late] == sorted(f.date for f in late)
    assert len({f.date for f in late}) == 4
    assert late[0].per_day > late[1].per_day > late[3].per_day > 0


def test_the_recent_counts_more_than_the_old():
    slow_then_fast = [(START + timedelta(days=i), 0.001 * i if i < 20 else 0.02 + 0.01 * (i - 20)) for i in range(40)]
    whole = slow_then_fast[-1][1] / 39
    assert forecast(slow_then_fast, now=slow_then_fast[-1][0]).per_day > 1.1 * whole


@pytest.mark.parametrize(
    ("shares", "now"),
    [
        ([], START),
        (days(7), START + timedelta(days=7)),
        (days(40, 0.0), START + timedelta(days=40)),
        ([(START, 0.01 * i) for i in range(20)], START),  # all at one moment
        ([(START + timedelta(days=i), 0.3 + 0.2 * (i > 15)) for i in range(30)], START + timedelta(days=30)),  # one step is no trend
    ],
    ids=["nothing", "few", "free", "at once", "one step"],
)
def test_where_there_is_no_trend_none_is_told(shares, now):
    found = forecast(shares, now=now)
    assert found.date is found.earliest is found.latest is None
    assert str(found) == "no trend"


def test_what_is_used_up_was_used_up_when_it_was():
    found = forecast(days(110), now=START + timedelta(days=300))
    assert found.date == found.earliest == found.latest == START + timedelta(days=99)


def test_what_is_ten_years_away_is_not_told_as_a_date():
    found = forecast(days(40, 1e-6), now=START + timedelta(days=40))
    assert found.date is None
    assert str(found) == "not within 10 years at the recent rate"


def test_charges_of_one_moment_or_of_next_to_nothing_break_nothing():
    tick = timedelta(microseconds=1)
    close = [(START + i * tick, 0.01 * (i + 1)) for i in range(20)]  # twenty in twenty microseconds: steps of less than one
    found = forecast(close, now=START + 19 * tick)
    assert found.date - START < timedelta(milliseconds=1)
    tiny = [(START + timedelta(days=i), 5e-324 * (i + 1)) for i in range(40)]
    assert forecast(tiny, now=START + timedelta(days=40)).date is None
    end_of_time = datetime(9998, 12, 30, tzinfo=UTC)
    late = [(end_of_time - timedelta(days=40 - i), 0.001 * (i + 1)) for i in range(40)]
    assert forecast(late, now=end_of_time).date is None


def test_a_clock_set_back_and_a_limit_moved_away_break_nothing():
    back = forecast(days(40), now=START - timedelta(days=365))
    assert back.date == START + timedelta(days=99)
    assert forecast([*days(40), (START + timedelta(days=40), math.inf)], now=START + timedelta(days=40)).date == START + timedelta(days=40)
    fallen = [*days(40), *((START + timedelta(days=40 + i), 0.2 + 0.005 * i) for i in range(20))]
    assert forecast(fallen, now=fallen[-1][0]).date > fallen[-1][0]


def test_the_order_in_which_charges_are_given_does_not_matter():
    shuffled = days(60)
    random.Random(3).shuffle(shuffled)
    assert forecast(shuffled, now=START + timedelta(days=60)) == forecast(days(60), now=START + timedelta(days=60))


@pytest.mark.parametrize(
    ("shares", "more"),
    [
        ([(START, math.nan)], {}),
        ([(START, -0.1)], {}),
        ([(START, "0.5")], {}),
        ([(START, True)], {}),
        ([(datetime(2026, 1, 1), 0.5)], {}),  # noqa: DTZ001 - that is what is refused
        ([("2026-01-01", 0.5)], {}),
        ([], {"now": datetime(2026, 1, 1)}),  # noqa: DTZ001
        ([], {"confidence": 1.0}),
        ([], {"confidence": 0.1}),
        ([], {"confidence": math.nan}),
        ([], {"confidence": "0.9"}),
    ],
    ids=range(11),
)
def test_a_forecast_of_nonsense_is_refused(shares, more):
    with pytest.raises(InputError):
        forecast(shares, **{"now": START, **more})


@given(
    gaps=st.lists(st.floats(0, 1e5), min_size=1, max_size=60),
    rises=st.lists(st.floats(0, 0.2) | st.just(5e-324), min_size=60, max_size=60),
    wait=st.floats(0, 1e5),
    confidence=st.floats(0.5, 0.999),
)
def test_every_history_has_a_forecast_that_hangs_together(gaps, rises, wait, confidence):
    at, share, shares = START, 0.0, []
    for gap, rise in zip(gaps, rises, strict=False):
        at, share = at + timedelta(days=gap), share + rise
        shares.append((at, share))
    now = at + timedelta(days=wait)
    found = forecast(shares, now=now, confidence=confidence)
    assert found.charges == len(shares)
    assert str(found)
    assert math.isfinite(found.per_day)
    json.dumps(found.to_dict(), allow_nan=False)
    if found.date is not None:
        assert found.earliest <= found.date
        assert found.latest is None or found.date <= found.latest
        assert (found.date <= now) == (share >= 1) or found.date == now


def spent(rng, kind):
    """A budget used up: charges of 1 % of it on average."""
    at, share, found = 0.0, 0.0, []
    while share < 1:
        match kind:
            case "as they come":
                at, price = at + rng.expovariate(1), 0.01
            case "of all sizes":
                at, price = at + rng.expovariate(1), rng.expovariate(100)
            case "in bunches":
                at, price = at + (rng.expovariate(0.2) if rng.random() < 0.2 else 0.01), 0.01
            case _:
                at, price = at + rng.expovariate(2), 0.01
                at += max(0, 7 - at % 7) if at % 7 >= 5 else 0  # not at the weekend
        share += price
        found.append((START + timedelta(days=at), min(share, 1.0)))
    return found


@pytest.mark.statistical
@pytest.mark.parametrize("kind", ["as they come", "of all sizes", "in bunches", "on weekdays"])
@pytest.mark.parametrize("part", [0.35, 0.8])
def test_the_interval_covers_what_comes(kind, part):
    """Nine in ten of the dates lie in their intervals.

    Of 200 histories at least 165 must be covered: were the coverage 0.90, fewer would be with probability 0.0004; were it
    0.75, with probability 0.99. And an interval that says nothing covers too, so three in four must have an end.
    """
    rng, covered, ended = random.Random(f"{kind} {part}"), 0, 0
    for _ in range(200):
        history = spent(rng, kind)
        now = next(at for at, share in history if share >= part)
        found = forecast([(at, share) for at, share in history if at <= now], now=now)
        latest = found.latest or datetime.max.replace(tzinfo=UTC)
        covered += found.earliest is not None and found.earliest <= history[-1][0] <= latest
        ended += found.latest is not None
    assert covered >= 165
    assert ended >= (150 if kind != "in bunches" or part > 0.5 else 80)


# ------------------------------------------------------------------------------------------------ log and file


def test_the_log_gets_one_line(caplog):
    with caplog.at_level(logging.WARNING, "dither.ledger"):
        assert send(Log(), MESSAGE) == ""
        assert send(Log(), {"entry": 8}) == ""
    assert [r.getMessage() for r in caplog.records] == [MESSAGE["text"], '{"entry":8}']
    assert {r.levelname for r in caplog.records} == {"WARNING"}


def test_a_file_gets_one_line_each(tmp_path):
    channel = File(tmp_path / "alerts.jsonl")
    assert [send(channel, {**MESSAGE, "entry": n}) for n in range(3)] == [""] * 3
    lines = channel.path.read_text().splitlines()
    assert [json.loads(line)["entry"] for line in lines] == [0, 1, 2]
    assert json.loads(lines[0]) == {**MESSAGE, "entry": 0}


def test_a_line_torn_by_a_crash_spoils_no_other(tmp_path):
    channel = File(tmp_path / "alerts.jsonl")
    channel.path.write_bytes(b'{"entry":1}\n{"ent')
    assert send(channel, MESSAGE) == ""
    assert [line[:6] for line in channel.path.read_text().splitlines()] == ['{"entr', '{"ent', '{"entr']


def test_many_writers_mix_no_lines(tmp_path):
    channel = File(tmp_path / "alerts.jsonl")
    threads = [threading.Thread(target=lambda: [send(channel, {**MESSAGE, "text": "x" * 9_000}) for _ in range(5)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    lines = channel.path.read_text().splitlines()
    assert len(lines) == 20
    assert all(json.loads(line)["text"] == "x" * 9_000 for line in lines)


def test_a_file_that_is_held_for_ever_is_not_waited_for(tmp_path, monkeypatch):
    monkeypatch.setattr(alerts, "LOCK_SECONDS", 0.02)
    channel = File(tmp_path / "alerts.jsonl")
    with channel.path.open("wb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert send(channel, MESSAGE) == "the file is held by another program"
    assert send(channel, MESSAGE) == ""


def test_a_file_that_cannot_be_written_is_told(tmp_path):
    assert send(File(tmp_path / "nowhere" / "alerts"), MESSAGE) == "FileNotFoundError: No such file or directory"
    assert send(File(tmp_path), MESSAGE).startswith("IsADirectoryError")
    assert send(File(Path("/dev/full")), MESSAGE) == "this is not a file"
    os.mkfifo(tmp_path / "pipe")  # which nobody reads: an ordinary opening would wait for ever
    assert send(File(tmp_path / "pipe"), MESSAGE) == "this is not a file"
    assert send(File(tmp_path / "x"), {"entry": math.nan}).endswith("expected null, booleans, finite numbers, text, lists, maps.")


# ------------------------------------------------------------------------------------------------ webhook


class Hook(BaseHTTPRequestHandler):
    """Answers with the statuses it was given, the last one for ever, and remembers what it was asked."""

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        asked = self.server.asked
        asked.append((self.path, dict(self.headers), body))
        status = self.server.statuses[min(len(asked), len(self.server.statuses)) - 1]
        self.send_response(status)
        if 300 <= status < 400:
            self.send_header("Location", f"http://127.0.0.1:{self.server.server_port}/elsewhere")
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_POST

    def log_message(self, *args):
        pass


@contextmanager
def hook(*statuses):
    with ThreadingHTTPServer(("127.0.0.1", 0), Hook) as server:
        server.asked, server.statuses = [], statuses
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server, f"http://127.0.0.1:{server.server_port}/hook?key=secret"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    monkeypatch.setattr(alerts, "PAUSES", (0.0, 0.0))
    monkeypatch.setenv("no_proxy", "127.0.0.1")


def test_a_webhook_gets_the_message():
    with hook(204) as (server, url):
        assert send(Webhook(url, {"Authorization": "Bearer secret"}), MESSAGE) == ""
    ((path, headers, body),) = server.asked
    assert path == "/hook?key=secret"
    assert json.loads(body) == MESSAGE
    assert headers["Content-Type"] == "application/json"
    assert headers["Idempotency-Key"] == MESSAGE["hash"]
    assert headers["Authorization"] == "Bearer secret"


@pytest.mark.parametrize(
    ("statuses", "told", "asked"),
    [
        ((500, 200), "", 2),
        ((503, 429, 200), "", 3),
        ((500,), "the webhook answered 500", 3),
        ((404, 200), "the webhook answered 404", 1),  # it will be no other a second later
        ((401,), "the webhook answered 401", 1),
        ((301, 200), "the webhook answered 301", 1),  # not followed: the message may hold what the other place must not know
        ((302, 200), "the webhook answered 302", 1),
        ((307, 200), "the webhook answered 307", 1),
        ((308, 200), "the webhook answered 308", 1),
        ((304,), "the webhook answered 304", 1),
    ],
    ids=str,
)
def test_an_answer_other_than_yes_is_told(statuses, told, asked):
    with hook(*statuses) as (server, url):
        assert send(Webhook(url), MESSAGE) == told
    assert [path for path, _, _ in server.asked] == ["/hook?key=secret"] * asked


@contextmanager
def talker(talk):
    """A server that does whatever ``talk(connection)`` does, with each connection, until the test ends."""
    done = threading.Event()
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        server.settimeout(0.02)
        threads = []

        def serve():
            while not done.is_set():
                try:
                    connection, _ = server.accept()
                except TimeoutError:
                    continue
                threads.append(threading.Thread(target=talked, args=(connection,)))
                threads[-1].start()

        def talked(connection):
            with connection, suppress(OSError):
                talk(connection, done)

        listener = threading.Thread(target=serve)
        listener.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}/secret"
        finally:
            done.set()
            listener.join()
            for thread in threads:
                thread.join()
            for asking in list(alerts._ASKING.values()):
                asking.join(5)


def silent(connection, done):
    done.wait(5)


def dripping(connection, done):
    connection.sendall(b"HTTP/1.1 200 ")
    while not done.is_set():
        connection.sendall(b"O")
        done.wait(0.01)


def continuing(connection, done):
    while not done.is_set():
        connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        done.wait(0.001)


@pytest.mark.parametrize("talk", [silent, dripping, continuing])
def test_a_webhook_that_answers_never_or_byte_by_byte_is_left_in_time(monkeypatch, talk):
    monkeypatch.setattr(alerts, "WEBHOOK_SECONDS", 0.05)
    with talker(talk) as url:
        assert send(Webhook(url), MESSAGE) in {"the webhook did not answer within 0.05 s", "the webhook did not answer (TimeoutError)"}
        if talk is not silent:  # whose sockets have their own time-out, so nothing is held
            assert send(Webhook(url), MESSAGE) == "the webhook still holds an earlier message"
        assert sum(t.name == Webhook(url).name for t in threading.enumerate()) <= 1


@pytest.mark.parametrize(
    "answer",
    [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 abc\r\n\r\n", b"\0" * 100, b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n", b"x" * 100_000],
    ids=range(6),
)
def test_an_answer_that_is_none_is_told_without_the_address(answer):
    with talker(lambda connection, _: (connection.recv(1), connection.sendall(answer))) as url:
        told = send(Webhook(url), MESSAGE)
    assert told.startswith("the webhook did not answer (")
    assert "secret" not in told


def test_a_webhook_that_is_not_there_is_told():
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
    assert send(Webhook(f"http://127.0.0.1:{port}/secret"), MESSAGE) == "the webhook did not answer (URLError)"
    with hook(200) as (_, url):
        assert send(Webhook(url.replace("http:", "https:")), MESSAGE) == "the webhook did not answer (URLError)"


def test_a_webhook_shows_no_secret():
    made = Webhook("https://example.org/hook?key=secret", {"Authorization": "Bearer secret"})
    assert "Bearer" not in repr(made)
    assert made.name.startswith("webhook:example.org:")
    assert "secret" not in made.name
    assert made.name != Webhook("https://example.org/hook?key=other").name
    assert hash(made) == hash(Webhook(made.url, {"Authorization": "Bearer secret"}))


@pytest.mark.parametrize(
    "wrong",
    [
        *(
            "",
            "example.org",
            "ftp://example.org",
            "file:///etc/passwd",
            "http://",
            "http:///x",
            "http://h:0/",
            "http://h:99999/",
            "http://h:x/",
        ),
        *("https://user:secret@h/", "http://h/a b", "http://h/é", "http://h/\n", "http://h/\0", "http://[::1/", "http://h/" + "x" * 2_000),
        *(None, 7, b"http://h/", ["http://h/"]),
    ],
    ids=range(20),
)
def test_what_is_no_address_is_refused_and_not_shown(wrong):
    with pytest.raises(InputError, match="This webhook is not allowed") as told:
        Webhook(wrong)
    assert "secret" not in str(told.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"A": "secret\r\nB: c"},
        {"A:": "secret"},
        {"": "secret"},
        {"A b": "secret"},
        {"A": 7},
        {7: "secret"},
        {"A": "sécret"},
        "secret",
        None,
    ],
)
def test_headers_that_would_break_a_request_are_refused_and_not_shown(wrong):
    with pytest.raises(InputError, match="headers of this webhook") as told:
        Webhook("http://h/", wrong)
    assert "secret" not in str(told.value)


# ------------------------------------------------------------------------------------------------ command


def program(tmp_path, text):
    path = tmp_path / "tell"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


def test_a_command_reads_the_message(tmp_path):
    told = tmp_path / "told"
    assert send(Command((program(tmp_path, 'cat > "$1"'), str(told))), MESSAGE) == ""
    assert json.loads(told.read_text()) == MESSAGE
    odd = tmp_path / "a; touch b $(touch c) `touch d`"
    assert send(Command((program(tmp_path, 'cat > "$1"'), str(odd))), MESSAGE) == ""  # no shell reads its arguments
    assert sorted(p.name for p in tmp_path.iterdir()) == [odd.name, "tell", "told"]


def test_a_command_that_fails_is_told(tmp_path):
    assert send(Command(("false",)), MESSAGE) == "the command ended with status 1"
    assert send(Command((program(tmp_path, "kill -9 $$"),)), MESSAGE) == "the command ended with status -9"
    assert send(Command((str(tmp_path / "none"),)), MESSAGE) == "the command could not be started: No such file or directory"
    assert send(Command((str(tmp_path),)), MESSAGE) == "the command could not be started: Permission denied"
    assert send(Command(("true", "x" * 10**7)), MESSAGE) == "the command could not be started: Argument list too long"
    assert send(Command(("true",)), {"entry": math.inf}).startswith("{'entry': inf} cannot be written as JSON")


def test_a_command_that_reads_nothing_is_fine():
    assert send(Command(("true",)), {**MESSAGE, "text": "x" * 10**6}) == ""


def test_a_command_that_does_not_end_is_ended_with_all_it_started(tmp_path, monkeypatch):
    monkeypatch.setattr(alerts, "COMMAND_SECONDS", 0.05)
    left = tmp_path / "pid"
    told = send(Command((program(tmp_path, 'sleep 60 & echo $! > "$1"; wait'), str(left))), MESSAGE)
    assert told == "the command did not end within 0.05 s"
    if left.exists() and left.read_text().strip():
        child = Path("/proc", left.read_text().strip(), "stat")
        for _ in range(200):
            if not child.exists() or child.read_text().split()[2] == "Z":
                break
            time.sleep(0.01)
        assert not child.exists() or child.read_text().split()[2] == "Z"


def test_a_command_is_not_told_the_password_of_the_key(tmp_path, monkeypatch):
    monkeypatch.setenv("DITHER_KEY_PASSWORD", "secret")
    monkeypatch.setenv("OTHER", "kept")
    code = "import os, sys; sys.exit('DITHER_KEY_PASSWORD' in os.environ or os.environ['OTHER'] != 'kept')"
    assert send(Command((sys.executable, "-c", code)), MESSAGE) == ""


@pytest.mark.parametrize(
    "wrong",
    [
        (),
        [],
        "true",
        None,
        7,
        ("",),
        ("", "x"),
        ("true", 7),
        ("true", None),
        ("tr\0ue",),
        ("true", "a\0b"),
        ("true", "\ud800"),
        (b"true",),
        {"true": 1},
    ],
    ids=range(14),
)
def test_what_is_no_command_is_refused(wrong):
    with pytest.raises(InputError, match="command="):
        Command(wrong)


def test_a_command_shows_no_secret():
    made = Command(["/usr/bin/tell", "--token", "secret", ""])
    assert made.argv == ("/usr/bin/tell", "--token", "secret", "")
    assert made.name.startswith("command:tell:")
    assert "secret" not in made.name
    with pytest.raises(InputError) as told:
        Command(("tell", "secret", "\0"))
    assert "secret" not in str(told.value)


@pytest.mark.parametrize("wrong", ["", "a\0b", None, 7, "x" * 5_000, np.array(["x"])], ids=range(6))
def test_what_is_no_path_is_refused(wrong):
    with pytest.raises(InputError, match="file="):
        File(wrong)
    assert File("alerts.jsonl").name == f"file:{Path('alerts.jsonl').absolute()}"
