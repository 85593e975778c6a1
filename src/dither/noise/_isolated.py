"""A user's own function on private rows: whatever goes wrong in it is mapped to None, and nobody sees what it was.

An exception, a warning, a hang or a wrong type tells something about the rows. Here they all become the same answer.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import time
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def quietly(function: Callable[..., Any], *given: object) -> Any:  # noqa: ANN401 - whatever the function makes
    """What ``function`` returns, or None if it raises; warnings are swallowed.

    >>> quietly(lambda x: 1 / x, 0) is None, quietly(lambda x: 1 / x, 4)
    (True, 0.25)
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return function(*given)
    except BaseException as error:  # a function of private rows may fail on them in any way, and that must not be seen
        if isinstance(error, KeyboardInterrupt):
            raise
        return None


def answer(function: Callable[[Any], Any], rows: object, size: int) -> Floats | None:
    """The ``size`` finite numbers that ``function`` makes of ``rows``, or None.

    >>> answer(len, [1, 2], 1), answer(sum, ["a"], 1) is None
    (array([2.]), True)
    """
    made = quietly(lambda: np.asarray(function(rows), dtype=np.float64).reshape(-1))
    if made is None or made.size != size or not bool(np.isfinite(made).all()):
        return None
    found: Floats = made
    return found


def isolated_answer(function: Callable[[Any], Any], rows: object, size: int, *, timeout: float, steady: bool) -> Floats | None:
    """As ``answer``, in a process of its own that is killed after ``timeout`` seconds; ``steady`` takes all of them always.

    >>> isolated_answer(len, [1, 2], 1, timeout=20.0, steady=False)
    array([2.])
    """
    methods = multiprocessing.get_all_start_methods()
    context: Any = multiprocessing.get_context("fork" if "fork" in methods else "spawn")
    ending = time.monotonic() + timeout
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(theirs, function, rows, size), daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # newer Pythons warn of forks under threads; the child only computes and leaves
        process.start()
    theirs.close()
    made: Floats | None = None
    try:
        made = _received(ours, size, ending)
    finally:
        process.kill()
        process.join()
        ours.close()
    if steady:
        time.sleep(max(0.0, ending - time.monotonic()))
    return made


def _received(ours: Connection, size: int, ending: float) -> Floats | None:
    """The numbers that came by ``ending``; whoever stops in the middle of them is not waited for."""
    raw = b""
    while len(raw) < 8 * size and ours.poll(max(0.0, ending - time.monotonic())):
        part = os.read(ours.fileno(), 8 * size - len(raw))
        if not part:  # it died, or had no answer
            break
        raw += part
    found = np.frombuffer(raw, np.float64) if len(raw) == 8 * size else None
    return found if found is not None and bool(np.isfinite(found).all()) else None


def _child(theirs: Connection, function: Callable[[Any], Any], rows: object, size: int) -> None:
    """In the other process: no output, one answer, and out without running anyone's clean-up."""
    sink = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(sink, stream)
    sys.stdout = sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - for the life of the process
    made = answer(function, rows, size)
    if made is not None:
        with os.fdopen(theirs.fileno(), "wb") as pipe:
            pipe.write(made.tobytes())
    os._exit(0)
