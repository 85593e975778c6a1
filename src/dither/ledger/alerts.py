"""Alerts: what has passed its threshold, when a limit will be used up, and telling people and programs of it.

A threshold passed is an entry of the book, written with the charge that passed it. Telling of it is a second step, made
after the commit and never in the way of a charge: whatever was not told (a crash in between, a channel that was down) is
told at the next ``deliver_pending``. So a message may come twice and is never lost; its ``entry`` tells copies apart.
A message holds names, limits and shares, and never a value that was released.
"""

from __future__ import annotations

import fcntl
import hashlib
import logging
import math
import os
import re
import signal
import stat
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.client import HTTPException
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeAlias, assert_never

from dither.core import checks
from dither.core.encoding import canonical_json
from dither.core.errors import DitherError, InputError
from dither.ledger.blocks import aware
from dither.ledger.seal import PASSWORD_VARIABLE

LOGGER = logging.getLogger("dither.ledger")
WEBHOOK_SECONDS = 5.0
COMMAND_SECONDS = 10.0
LOCK_SECONDS = 2.0
PAUSES = (0.5, 2.0)
"""Seconds between the tries of a webhook, within one delivery."""
RECENT = 200
LEAST_CHARGES, LEAST_BUSY = 8, 3
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_AGAIN = frozenset({408, 425, 429})
"""Answers of the kind 4xx that may be others a moment later."""
_YEARS = 3650.0
"""Days, beyond which no date is told."""


# ------------------------------------------------------------------------------------------------ forecast


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """When a limit will be used up if the recent trend goes on; ``date`` is None where there is no trend, or no end in sight.

    ``earliest`` and ``latest`` hold the date with that ``confidence``; ``latest`` is None where it may never come.
    """

    date: datetime | None
    earliest: datetime | None = None
    latest: datetime | None = None
    per_day: float = 0.0
    charges: int = 0
    confidence: float = 0.9

    def __str__(self) -> str:
        if self.date is None:
            return "no trend" if self.per_day <= 0 else f"not within {_YEARS / 365:.0f} years at the recent rate"
        late = f"{self.latest:%Y-%m-%d}" if self.latest is not None else "never"
        early = self.date if self.earliest is None else self.earliest
        return f"about {self.date:%Y-%m-%d}, {100 * self.confidence:g} % between {early:%Y-%m-%d} and {late}"

    def to_dict(self) -> dict[str, object]:
        """A plain JSON value."""
        return {
            "date": _iso(self.date),
            "earliest": _iso(self.earliest),
            "latest": _iso(self.latest),
            "share_per_day": self.per_day,
            "charges": self.charges,
            "confidence": self.confidence,
            "text": str(self),
        }


def forecast(shares: Sequence[tuple[datetime, float]], *, now: datetime, confidence: float = 0.9) -> Forecast:
    """When the share reaches 1, from (time, share after the charge) of the committed charges.

    A line is fitted to the last charges, the later half weighing more than the earlier. A share is a sum, so its steps over equal
    times are what is independent, not its values: the fit is by generalised least squares, which is the weighted mean of
    those steps, and the interval covers both the doubt in the rate and the unevenness of what is still to come.

    >>> start = datetime(2026, 1, 1, tzinfo=UTC)
    >>> steady = [(start + timedelta(days=i), 0.01 * (i + 1)) for i in range(40)]
    >>> forecast(steady, now=steady[-1][0]).date
    datetime.datetime(2026, 4, 10, 0, 0, tzinfo=datetime.timezone.utc)
    >>> str(forecast(steady[:3], now=steady[2][0]))
    'no trend'
    """
    sure = checks.between("confidence", confidence, 0.5, 0.999)
    points = sorted((aware("shares", at), _share(share)) for at, share in shares)[-RECENT:]
    end = max([aware("now", now), *(at for at, _ in points[-1:])])  # a clock set back makes no charge disappear
    nothing = Forecast(date=None, charges=len(points), confidence=sure)
    if points and points[-1][1] >= 1:
        reached = next(at for at, share in points if share >= 1)
        return Forecast(date=reached, earliest=reached, latest=reached, charges=len(points), confidence=sure)
    if len(points) < LEAST_CHARGES or end <= points[0][0]:
        return nothing
    steps, left = _steps(points, end), 1 - points[-1][1]
    if sum(step > 0 for step in steps) < LEAST_BUSY:
        return nothing
    width = (end - points[0][0]) / timedelta(days=1) / len(steps)
    mean, spread, doubt, freedom = _weighted(steps)
    if left * width > _YEARS * mean:
        return Forecast(date=None, per_day=mean / width, charges=len(points), confidence=sure)
    first, last = _crossings(left, mean, _student(0.5 + 0.5 * sure, freedom), spread, doubt)
    return Forecast(
        date=_after(end, left / mean * width),
        earliest=_after(end, first * width),
        latest=None if last is None else _after(end, last * width),
        per_day=mean / width,
        charges=len(points),
        confidence=sure,
    )


def _share(value: float) -> float:
    """A share may be ∞, where a limit was moved away to nothing."""
    found = checks.extended("shares", value, "a number >= 0")
    if found < 0:
        raise checks.refuse("shares", value, "a number >= 0")
    return found


def _after(start: datetime, days: float) -> datetime | None:
    """So many days later; None for what is as good as never."""
    return start + timedelta(days=days) if days <= 10 * _YEARS and days < (datetime.max.replace(tzinfo=UTC) - start).days else None


def _steps(points: Sequence[tuple[datetime, float]], end: datetime) -> list[float]:
    """By how much the share rose in each of some equal times from the first charge on (the first one's own rise is before)."""
    count = min(24, max(6, len(points) // 3))
    start = points[0][0]
    rises = [0.0] * count
    for (_, before), (at, after) in pairwise(points):
        place = -((-count * (at - start)) // (end - start)) - 1  # a charge at the border of two times is of the earlier one
        rises[max(place, 0)] += max(after - before, 0.0)
    return rises


def _weighted(steps: Sequence[float]) -> tuple[float, float, float, float]:
    """Mean, variance of a step, variance of the mean, and degrees of freedom; a step's weight halves over half the window."""
    count = len(steps)
    weights = [0.5 ** ((count - 1 - j) / (count / 2)) for j in range(count)]
    total, squares = math.fsum(weights), math.fsum(w * w for w in weights)
    mean = math.fsum(w * x for w, x in zip(weights, steps, strict=True)) / total
    spread = math.fsum(w * (x - mean) ** 2 for w, x in zip(weights, steps, strict=True)) / (total - squares / total)
    # Charges come in bunches and differ in size: half the degrees of freedom are counted, which made the intervals cover (tests).
    return mean, spread, spread * squares / total**2, (total**2 / squares - 1) / 2


def _student(probability: float, freedom: float) -> float:
    from scipy.special import stdtrit  # noqa: PLC0415 - loaded when a forecast is asked for

    return float(stdtrit(freedom, probability))


def _crossings(left: float, mean: float, sure: float, spread: float, doubt: float) -> tuple[float, float | None]:
    """The first and last k at which mean·k ± sure·√(spread·k + doubt·k²) meets what is left; None for never."""
    a = mean * mean - sure * sure * doubt
    b = 2 * left * mean + sure * sure * spread
    root = math.sqrt(max(b * b - 4 * a * left * left, 0.0))
    return 2 * left * left / (b + root), (b + root) / (2 * a) if a > 0 else None


def _iso(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).isoformat(timespec="seconds")


# ------------------------------------------------------------------------------------------------ channels


@dataclass(frozen=True, slots=True)
class Log:
    """One line to Python's logging, logger ``dither.ledger``, level WARNING."""

    @property
    def name(self) -> str:
        """By which deliveries are remembered."""
        return "log"


@dataclass(frozen=True, slots=True)
class File:
    """One JSON line appended to a file, on disk before it counts as told."""

    path: Path

    def __post_init__(self) -> None:
        checks.instance("file", self.path, (str, Path), "the path of a file")
        checks.text("file", str(self.path), limit=4_000)
        object.__setattr__(self, "path", Path(self.path))

    @property
    def name(self) -> str:
        """By which deliveries are remembered."""
        return f"file:{self.path.absolute()}"


@dataclass(frozen=True, slots=True)
class Webhook:
    """A POST of the JSON message; any answer of 200 to 299 is success, no redirect is followed."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    def __post_init__(self) -> None:
        try:
            parts = urllib.parse.urlsplit(checks.text("webhook", self.url, limit=2_000))
            known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and parts.username is None
        except ValueError:
            known = False
        if not known or not self.url.isascii() or " " in self.url:  # its text is not shown, for it may hold a secret
            raise InputError(
                "This webhook is not allowed: expected an address such as https://example.org/hook. Put a password in headers."
            )
        given: object = self.headers
        if not isinstance(given, Mapping) or not all(map(_is_header, given.items())):
            raise InputError("The headers of this webhook are not allowed: expected names and values of printable ASCII characters.")
        object.__setattr__(self, "headers", dict(given))

    @property
    def name(self) -> str:
        """By which deliveries are remembered: the host and a digest, as an address may hold a secret."""
        return f"webhook:{urllib.parse.urlsplit(self.url).hostname}:{hashlib.sha256(self.url.encode()).hexdigest()[:12]}"


def _is_header(item: tuple[object, object]) -> bool:
    name, value = item
    if not isinstance(name, str) or not isinstance(value, str):
        return False
    return _HEADER.fullmatch(name) is not None and value.isascii() and value.isprintable()


@dataclass(frozen=True, slots=True)
class Command:
    """A program started without a shell, the JSON message on its stdin; exit status 0 within 10 s is success."""

    argv: tuple[str, ...]

    def __post_init__(self) -> None:
        given = checks.sequence("command", self.argv, "a list: the program and its arguments", limit=1_000)
        if not given[0] or not all(isinstance(part, str) and _can_be_argument(part) for part in given):
            raise checks.refuse("command", given[0], "a list of texts: the program and its arguments")  # arguments may be secrets
        object.__setattr__(self, "argv", tuple(given))

    @property
    def name(self) -> str:
        """By which deliveries are remembered: the program and a digest, as an argument may hold a secret."""
        return f"command:{Path(self.argv[0]).name}:{hashlib.sha256(canonical_json(list(self.argv)).encode()).hexdigest()[:12]}"


def _can_be_argument(part: str) -> bool:
    try:
        return b"\0" not in os.fsencode(part)
    except UnicodeEncodeError:
        return False


Channel: TypeAlias = Log | File | Webhook | Command


class _UntoldError(Exception):
    """A message did not arrive; the text is fit for a log."""


def send(channel: Channel, message: Mapping[str, Any]) -> str:
    """Tell one message; "" when it arrived, else why not. It raises nothing.

    >>> send(Command(("false",)), {"entry": 7})
    'the command ended with status 1'
    """
    try:
        match channel:
            case Log():
                LOGGER.warning("%s", message.get("text", canonical_json(dict(message))))
            case File(path=path):
                _append(path, message)
            case Webhook():
                _post(channel, message)
            case Command(argv=argv):
                _start(argv, message)
            case _:
                assert_never(channel)
    except _UntoldError as error:
        return str(error)
    except DitherError as error:  # a message that is no JSON
        return str(error)
    except OSError as error:
        return f"{type(error).__name__}: {error.strerror or 'no more is known'}"
    return ""


def _append(path: Path, message: Mapping[str, Any]) -> None:
    """One line, on disk; what a crash left of a line is ended first."""
    line = f"{canonical_json(dict(message))}\n".encode("ascii")
    descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK, 0o666)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # a pipe that nobody reads would swallow it
            raise _UntoldError("this is not a file")
        _lock(descriptor)
        end = os.fstat(descriptor).st_size
        if end and os.pread(descriptor, 1, end - 1) != b"\n":
            line = b"\n" + line
        if os.write(descriptor, line) != len(line):
            raise _UntoldError("the file cannot grow")
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _lock(descriptor: int) -> None:
    """Against other writers of the same file; one that never lets go is not waited for."""
    until = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise _UntoldError("the file is held by another program") from None
            time.sleep(0.005)
        else:
            return


class _Stay(urllib.request.HTTPRedirectHandler):
    """A redirect is a failure: the message goes where it was told to go, or nowhere."""

    def redirect_request(self, *args: object, **kwargs: object) -> None:  # noqa: ARG002 - the signature is urllib's
        return None


_ASKING: dict[str, threading.Thread] = {}
"""Webhooks that have not answered yet, by their names: each is asked one thing at a time, however long it holds the line."""


def _post(channel: Webhook, message: Mapping[str, Any]) -> None:
    body = canonical_json(dict(message)).encode("ascii")
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "dither",
        "Idempotency-Key": str(message.get("hash", "")),
        **channel.headers,
    }
    reason = ""
    for pause in (0.0, *PAUSES):
        time.sleep(pause)
        busy = _ASKING.get(channel.name)
        if busy is not None and busy.is_alive():
            raise _UntoldError(reason or "the webhook still holds an earlier message")
        again, reason = _asked(channel, body, headers)
        if not reason:
            return
        if not again:
            break
    raise _UntoldError(reason)


def _asked(channel: Webhook, body: bytes, headers: Mapping[str, str]) -> tuple[bool, str]:
    """Whether to ask again, and what went wrong. The time-outs of a socket are for each byte, so the whole is timed from outside."""
    answers: list[tuple[bool, str]] = []
    asking = threading.Thread(target=lambda: answers.append(_ask(channel.url, body, headers)), name=channel.name, daemon=True)
    _ASKING[channel.name] = asking
    asking.start()
    asking.join(WEBHOOK_SECONDS)
    return answers[0] if answers else (True, f"the webhook did not answer within {WEBHOOK_SECONDS:g} s")


def _ask(url: str, body: bytes, headers: Mapping[str, str]) -> tuple[bool, str]:
    try:
        asked = urllib.request.Request(url, data=body, headers=dict(headers), method="POST")  # noqa: S310 - http(s), checked above
        with urllib.request.build_opener(_Stay()).open(asked, timeout=WEBHOOK_SECONDS) as answer:
            return False, "" if 200 <= answer.status < 300 else f"the webhook answered {answer.status}"
    except urllib.error.HTTPError as error:
        error.close()
        return error.code >= 500 or error.code in _AGAIN, f"the webhook answered {error.code}"
    except (OSError, HTTPException, ValueError) as error:
        return True, f"the webhook did not answer ({type(error).__name__})"  # never its address, which may hold a secret


def _start(argv: Sequence[str], message: Mapping[str, Any]) -> None:
    """In a session of its own, so that whatever it started ends with it; the key's password is none of its business."""
    body = f"{canonical_json(dict(message))}\n".encode("ascii")
    known = {name: value for name, value in os.environ.items() if name != PASSWORD_VARIABLE}
    null = subprocess.DEVNULL
    try:
        made = subprocess.Popen(  # noqa: S603 - a list, no shell; the operator names the program
            list(argv), stdin=subprocess.PIPE, stdout=null, stderr=null, start_new_session=True, env=known
        )
    except OSError as error:
        raise _UntoldError(f"the command could not be started: {error.strerror}") from None
    with made:
        try:
            made.communicate(body, timeout=COMMAND_SECONDS)
        except subprocess.TimeoutExpired:
            raise _UntoldError(f"the command did not end within {COMMAND_SECONDS:g} s") from None
        finally:
            if made.poll() is None:
                os.killpg(made.pid, signal.SIGKILL)
    if made.returncode != 0:
        raise _UntoldError(f"the command ended with status {made.returncode}")
