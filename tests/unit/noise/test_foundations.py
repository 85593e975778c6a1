"""What the mechanisms stand on: directed rounding, whole numbers of a grid, noise in order, somebody's function in a process of its own."""

import asyncio
import contextlib
import gc
import math
import os
import struct
import sys
import threading
import time
from fractions import Fraction
from multiprocessing.connection import Connection

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dither.core.errors import InputError, OverBudgetError, RefusedError
from dither.noise import _whole, samplers
from dither.noise._isolated import answer, isolated_answer, quietly
from dither.noise._rounding import down, sqrt_up, up
from dither.noise.rng import UnsafeSeededRng

ratios = st.builds(
    lambda a, b, e: Fraction(a, b) * Fraction(2) ** e, st.integers(0, 10**40), st.integers(1, 10**40), st.integers(-900, 800)
)


@given(ratios)
def test_up_and_down_are_the_nearest_floats_on_their_side(exact):
    high, low = up(exact), down(exact)
    assert Fraction(low) <= exact <= Fraction(high)
    assert Fraction(math.nextafter(high, -math.inf)) < exact < Fraction(math.nextafter(low, math.inf))
    assert (up(-exact), down(-exact)) == (-low, -high)


@given(ratios)
def test_sqrt_up_is_the_smallest_that_will_do(exact):
    root = sqrt_up(exact)
    assert Fraction(root) ** 2 >= exact
    assert root == 0.0 or Fraction(math.nextafter(root, 0.0)) ** 2 < exact


@pytest.mark.parametrize(("exact", "root"), [(0, 0.0), (4, 2.0), (Fraction(1, 4), 0.5), (Fraction(1, 10**800), 5e-324), (10**600, 1e300)])
def test_sqrt_up_where_the_square_is_no_float(exact, root):
    assert sqrt_up(exact) in (root, math.nextafter(root, math.inf))


def test_rounding_at_the_ends():
    assert up(Fraction(1, 10**400)) == 5e-324
    assert math.copysign(1.0, down(0)) == math.copysign(1.0, up(0)) == 1.0
    for beyond in (10**400, Fraction(sys.float_info.max) + 1):
        with pytest.raises(InputError, match="too large"):
            up(beyond)
        with pytest.raises(InputError, match="too large"):
            down(-beyond)


# ---------------------------------------------------------------- whole numbers of a grid


@given(st.integers(-(2**63) + 1, 2**63 - 1), st.integers(-70, 110))
def test_whole_numbers_are_the_nearest_that_the_grid_has(value, places):
    step, limit = 2.0**places, 1 << 61
    [got] = _whole.whole(np.array([value]), step).tolist()
    exact = Fraction(value) / Fraction(step)
    held = max(min(exact, limit), -limit)
    if places > 0:  # whole numbers are cut before they are scaled
        held = Fraction(max(min(value, limit), -limit)) / Fraction(step)
    assert abs(Fraction(got) - held) <= Fraction(1, 2)


def test_an_interrupt_at_any_line_wastes_noise_but_never_leaves_it_out():
    for line in range(1, 60):
        buffer = _whole.Buffer(lambda rng, size: samplers.discrete_gaussian(10**6, size, rng), 3, UnsafeSeededRng(5))
        seen = {tuple(buffer.next().tolist()) for _ in range(2)}
        left = [line]

        def trace(frame, event, _arg, left=left):
            if frame.f_code.co_filename != _whole.__file__:
                return None
            left[0] -= event == "line"
            if left[0] == 0 and event == "line":
                raise KeyboardInterrupt
            return trace

        sys.settrace(trace)
        try:
            with contextlib.suppress(KeyboardInterrupt):
                buffer.next()
        finally:
            sys.settrace(None)
        after = [tuple(buffer.next().tolist()) for _ in range(5)]
        assert len(seen | set(after)) == 7
        assert (0, 0, 0) not in after
        if left[0] > 0:
            break
    assert line > 4


def test_noise_in_order_is_all_of_it_once():
    drawn = []

    def draw(_rng, size):
        drawn.append(np.arange(size) + 1 + sum(map(len, drawn)))
        return drawn[-1]

    buffer = _whole.Buffer(draw, 40_000, None)
    told = np.concatenate([buffer.next() for _ in range(5)])
    assert told.tolist() == list(range(1, 200_001))
    assert not buffer._ready[: buffer._at].any()


def test_a_turn_in_a_child_is_refused_even_if_it_was_taken_when_the_child_was_born(monkeypatch):
    turn = _whole.Turn(3)
    held, release = threading.Event(), threading.Event()

    def hold():
        with turn:
            held.set()
            release.wait(20)

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait(20)
    with monkeypatch.context() as patch:
        patch.setattr(os, "getpid", lambda: -1)
        with pytest.raises(RefusedError, match="another process"), turn:
            pass
    release.set()
    thread.join()
    turn.taken = 3
    for _ in range(2):
        with pytest.raises(OverBudgetError), turn:
            pass


# ---------------------------------------------------------------- somebody's function


def raising(error):
    def function(_rows):
        raise error

    return function


FAILURES = [
    ValueError(),
    SystemExit(3),
    GeneratorExit(),
    asyncio.CancelledError(),
    RecursionError(),
    MemoryError(),
    StopIteration(),
    BaseException(),
]


@pytest.mark.parametrize("error", FAILURES, ids=lambda e: type(e).__name__)
def test_whatever_a_function_raises_is_no_answer(error):
    assert quietly(raising(error), [1]) is None
    assert answer(raising(error), [1], 1) is None
    assert isolated_answer(raising(error), [1], 1, timeout=20.0, steady=False) is None


def test_the_users_own_interrupt_gets_through():
    with pytest.raises(KeyboardInterrupt):
        quietly(raising(KeyboardInterrupt()), [1])
    assert isolated_answer(raising(KeyboardInterrupt()), [1], 1, timeout=20.0, steady=False) is None


@pytest.mark.parametrize(
    "made", [None, "x", [1.0, 2.0], [], math.nan, [math.inf], 1j, object(), {1: 2}], ids=lambda made: type(made).__name__
)
def test_what_is_not_the_right_count_of_finite_numbers_is_no_answer(made):
    assert answer(lambda _: made, [], 1) is None
    assert isolated_answer(lambda _: made, [], 1, timeout=20.0, steady=False) is None


def test_an_answer_larger_than_a_pipe_holds():
    large = np.arange(200_000) / 7
    assert (isolated_answer(lambda _: large, [], 200_000, timeout=60.0, steady=False) == large).all()
    assert isolated_answer(lambda _: large, [], 199_999, timeout=20.0, steady=False) is None


def test_a_function_that_stops_in_the_middle_of_an_answer_is_not_waited_for():
    """Half an answer, or the head of one, written behind our back; then nothing."""

    def half(_rows):
        for pipe in [found for found in gc.get_objects() if isinstance(found, Connection) and found.writable]:
            os.write(pipe.fileno(), struct.pack("!i", 8))
        time.sleep(60)

    start = time.monotonic()
    assert isolated_answer(half, [], 1, timeout=0.5, steady=False) is None
    assert time.monotonic() - start < 30


def test_a_function_that_dies_is_no_answer():
    assert isolated_answer(lambda _: os._exit(0), [], 1, timeout=20.0, steady=False) is None
    assert isolated_answer(lambda _: time.sleep(60), [], 1, timeout=0.3, steady=False) is None
