"""Alerts: what has passed its threshold, when a limit will be used up, and telling people and programs of it.

A threshold passed is an entry of the book, written with the charge that passed it. Telling of it is a second step, made
after the commit and never in the way of a charge: whatever was not told (a crash in between, a channel that was down) is
told at the next ``deliver_pending``. So a message may come twice and is never lost; its ``entry`` tells copies apart.
A message holds names, limits and shares, and never a value that was released.
"""

from __future__ import annotations

import hashlib
import logging
import math
import os
import subprocess
import time
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
from dither.core.errors import InputError

LOGGER = logging.getLogger("dither.ledger")
WEBHOOK_SECONDS = 5.0
COMMAND_SECONDS = 10.0
PAUSES = (0.5, 2.0)
"""Seconds between the tries of a webhook, within one delivery."""
RECENT = 200
LEAST_CHARGES, LEAST_BUSY = 8, 3
_YEARS = timedelta(days=3650)


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
            return "no trend" if self.per_day <= 0 else f"not within {_YEARS.days // 365} years at the recent rate"
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
    points = sorted(shares)[-RECENT:]
    nothing = Forecast(date=None, charges=len(points), confidence=sure)
    if points and points[-1][1] >= 1:
        reached = next(at for at, share in points if share >= 1)
        return Forecast(date=reached, earliest=reached, latest=reached, charges=len(points), confidence=sure)
    if len(points) < LEAST_CHARGES or now <= points[0][0]:
        return nothing
    start, left = points[0][0], 1 - points[-1][1]
    steps = _steps(points, now)
    if sum(step > 0 for step in steps) < LEAST_BUSY:
        return nothing
    width = (now - start) / len(steps)
    mean, spread, doubt, freedom = _weighted(steps)
    middle = left / mean
    per_day = mean / (width / timedelta(days=1))
    if middle * width > _YEARS:
        return Forecast(date=None, per_day=per_day, charges=len(points), confidence=sure)
    first, last = _crossings(left, mean, _student(0.5 + 0.5 * sure, freedom), spread, doubt)
    beyond = last is None or last * width > 10 * _YEARS
    return Forecast(
        date=now + middle * width,
        earliest=now + first * width,
        latest=None if last is None or beyond else now + last * width,
        per_day=per_day,
        charges=len(points),
        confidence=sure,
    )


def _steps(points: Sequence[tuple[datetime, float]], now: datetime) -> list[float]:
    """By how much the share rose in each of some equal times from the first charge to now (the first one's own rise is before)."""
    count = min(24, max(6, len(points) // 3))
    start = points[0][0]
    rises = [0.0] * count
    for (_, before), (at, after) in pairwise(points):
        place = -((-count * (at - start)) // (now - start)) - 1  # a charge at the border of two times is of the earlier one
        rises[min(max(place, 0), count - 1)] += max(after - before, 0.0)
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

    @property
    def name(self) -> str:
        """By which deliveries are remembered."""
        return f"file:{self.path.absolute()}"


@dataclass(frozen=True, slots=True)
class Webhook:
    """A POST of the JSON message; any answer of 200 to 299 is success, no redirect is followed."""

    url: str
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __post_init__(self) -> None:
        try:
            parts = urllib.parse.urlsplit(checks.text("webhook", self.url, limit=2_000))
            known = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
        except ValueError:
            known = False
        if not known:
            raise InputError("This webhook is not allowed: expected an address such as https://example.org/hook.")

    @property
    def name(self) -> str:
        """By which deliveries are remembered: the host and a digest, as an address may hold a secret."""
        return f"webhook:{urllib.parse.urlsplit(self.url).hostname}:{hashlib.sha256(self.url.encode()).hexdigest()[:12]}"


@dataclass(frozen=True, slots=True)
class Command:
    """A program started without a shell, the JSON message on its stdin; exit status 0 within 10 s is success."""

    argv: tuple[str, ...]

    def __post_init__(self) -> None:
        given = checks.sequence("command", self.argv, "a list: the program and its arguments", limit=1_000)
        if not all(isinstance(part, str) and part and "\0" not in part for part in given):
            raise checks.refuse("command", self.argv, "a list of texts: the program and its arguments")
        object.__setattr__(self, "argv", tuple(given))

    @property
    def name(self) -> str:
        """By which deliveries are remembered: the program and a digest, as an argument may hold a secret."""
        return f"command:{Path(self.argv[0]).name}:{hashlib.sha256(canonical_json(list(self.argv)).encode()).hexdigest()[:12]}"


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
    except OSError as error:
        return f"{type(error).__name__}: {error.strerror or 'no more is known'}"
    return ""


def _append(path: Path, message: Mapping[str, Any]) -> None:
    line = f"{canonical_json(dict(message))}\n".encode("ascii")
    with path.open("ab") as file:  # one write of one line: two processes do not mix theirs
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


class _Stay(urllib.request.HTTPRedirectHandler):
    """A redirect is a failure: the message goes where it was told to go, or nowhere."""

    def redirect_request(self, *args: object, **kwargs: object) -> None:  # noqa: ARG002 - the signature is urllib's
        return None


def _post(channel: Webhook, message: Mapping[str, Any]) -> None:
    body = canonical_json(dict(message)).encode("ascii")
    headers = {
        "Content-Type": "application/json",
        "User-Agent": "dither",
        "Idempotency-Key": str(message.get("hash", "")),
        **channel.headers,
    }
    opener = urllib.request.build_opener(_Stay())
    reason = ""
    for pause in (0.0, *PAUSES):
        time.sleep(pause)
        try:
            asked = urllib.request.Request(channel.url, data=body, headers=headers, method="POST")  # noqa: S310 - http(s), checked above
            with opener.open(asked, timeout=WEBHOOK_SECONDS) as answer:
                if 200 <= answer.status < 300:
                    return
                reason = f"the webhook answered {answer.status}"
        except urllib.error.HTTPError as error:
            reason = f"the webhook answered {error.code}"
            error.close()
        except (OSError, HTTPException, ValueError) as error:
            reason = f"the webhook did not answer ({type(error).__name__})"  # never its address, which may hold a secret
    raise _UntoldError(reason)


def _start(argv: Sequence[str], message: Mapping[str, Any]) -> None:
    body = f"{canonical_json(dict(message))}\n".encode("ascii")
    try:
        done = subprocess.run(  # noqa: S603 - a list, no shell; the operator names the program
            list(argv), input=body, timeout=COMMAND_SECONDS, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
    except subprocess.TimeoutExpired:
        raise _UntoldError(f"the command did not end within {COMMAND_SECONDS:g} s") from None
    except OSError as error:
        raise _UntoldError(f"the command could not be started: {error.strerror}") from None
    if done.returncode != 0:
        raise _UntoldError(f"the command ended with status {done.returncode}")
