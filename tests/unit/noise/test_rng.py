"""The keystream: never repeated across forks, threads, copies or buffers; re-keyed; loud when the system has no randomness."""

import contextlib
import copy
import os
import pickle
import sys
import threading

import numpy as np
import pytest
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from dither.core.errors import EntropyError, InputError, RefusedError
from dither.noise import rng as rng_module
from dither.noise import samplers
from dither.noise.rng import SecureRng, UnsafeSeededRng, array_rng, system_rng


@pytest.mark.parametrize("rng", [SecureRng(), UnsafeSeededRng(5)], ids=["secure", "seeded"])
def test_shapes_ranges_and_types(rng):
    assert [len(rng.bytes(n)) for n in (0, 1, 7, 4_095, 4_096, 4_097, 70_000, 3_000_000)] == [
        0,
        1,
        7,
        4_095,
        4_096,
        4_097,
        70_000,
        3_000_000,
    ]
    assert rng.bits(0) == 0
    assert all(0 <= rng.bits(n) < 1 << n for n in (1, 7, 8, 9, 64, 1_000))
    assert rng.below(1) == 0
    assert {rng.below(3) for _ in range(200)} == {0, 1, 2}
    for name, dtype in (("uint8", np.uint8), ("uint16", np.uint16), ("uint32", np.uint32), ("uint64", np.uint64)):
        words = getattr(rng, name)(5_000)
        assert words.dtype == dtype
        assert words.shape == (5_000,)
        words[0] = 1  # the caller's own
        assert abs(float(words.mean()) / float(np.iinfo(dtype).max) - 0.5) < 0.05
        assert getattr(rng, name)(0).shape == (0,)
    out = np.zeros(300)
    rng.fill(out)
    assert len(set(out.view(np.uint64).tolist())) == 300


def stretch(key, count):
    """``count`` bytes of ChaCha20 under ``key`` from block 0, and the key that comes before them in the stream."""
    cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), None).encryptor()
    return cipher.update(bytes(32)), cipher.update(bytes(count))


def test_the_stream_is_chacha20_under_a_key_that_replaces_itself():
    rng = UnsafeSeededRng(9)
    key = UnsafeSeededRng(9)._seed()
    for count in (1 << 20, 5_000, 1_024):
        key, expected = stretch(key, count)
        assert rng.bytes(count) == expected
    key, first = stretch(key, 1 << 20)
    key, second = stretch(key, 1)
    assert rng.bytes((1 << 20) + 1) == first + second
    key, small = stretch(key, 4_096)
    assert b"".join(rng.bytes(512) for _ in range(8)) == small
    assert rng._state.key == key


def test_no_key_reaches_the_end_of_the_block_numbers():
    """From a random first block one key in 2**18 would: OpenSSL refuses to go on there."""
    blocks = -(-(rng_module._KEY_LIFE + rng_module._KEY_BYTES) // 64)
    assert int.from_bytes(rng_module._NONCE[:4], "little") + blocks < 1 << 32


def test_a_stolen_state_gives_back_nothing_that_was_handed_out():
    """Whatever the state holds is run forward from: every key it has, as far as a key goes."""
    rng = UnsafeSeededRng(3)
    told = rng.bytes(5_000) + b"".join(rng.bytes(100) for _ in range(60))
    draws = [samplers.gaussian(1.0, rng=rng) for _ in range(60)]
    state = rng._state
    kept = bytes(state.key) + state.buffer.tobytes()
    ahead = stretch(bytes(state.key), 1 << 20)
    reachable = kept + ahead[0] + ahead[1]
    assert not any(told[i : i + 16] in reachable for i in range(0, len(told) - 16, 16))
    [reserve] = state.reserves.values()
    assert not set(draws) & set(reserve.draws.tolist())


def test_the_system_is_asked_again_every_gibibyte(monkeypatch):
    asked = []
    monkeypatch.setattr(rng_module, "_entropy", lambda: asked.append(1) or os.urandom(32))
    assert rng_module._SEED_LIFE == 1 << 30
    monkeypatch.setattr(rng_module, "_SEED_LIFE", 1 << 22)
    rng = SecureRng()
    rng.bytes(1 << 22)
    assert len(asked) == 1
    rng.bytes(1 << 22)
    assert len(asked) == 2
    for _ in range(1 << 10):
        rng.bytes(1 << 12)
    assert len(asked) == 3
    assert rng_module._KEY_LIFE == 1 << 20


def test_no_entropy_is_an_error_not_a_weak_key(monkeypatch):
    def broken(_count):
        raise OSError("no device")

    monkeypatch.setattr(os, "urandom", broken)
    with pytest.raises(EntropyError, match="gave no randomness"):
        SecureRng().bytes(1)
    monkeypatch.setattr(os, "urandom", bytes)
    with pytest.raises(EntropyError, match="broken"):
        SecureRng().bits(8)


def test_no_cipher_is_an_error(monkeypatch):
    def missing(*_):
        raise UnsupportedAlgorithm("not in this build")

    monkeypatch.setattr(rng_module, "Cipher", missing)
    with pytest.raises(EntropyError, match="no ChaCha20"):
        SecureRng().bytes(1)


def test_randomness_that_fails_later_fails_then(monkeypatch):
    """Once a seed is used up and the system has no more, nothing is drawn from what is left."""
    monkeypatch.setattr(rng_module, "_SEED_LIFE", 1 << 12)
    rng = SecureRng()
    rng.bytes(1 << 12)
    monkeypatch.setattr(os, "urandom", lambda count: b"1" * count)
    for ask in (lambda: rng.bytes(5_000), lambda: rng.bytes(8), lambda: samplers.gaussian(1.0, rng=rng)):
        with pytest.raises(EntropyError, match="broken"):
            ask()


@pytest.mark.parametrize("rng", [SecureRng(), UnsafeSeededRng(5)], ids=["secure", "seeded"])
@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_no_copies(rng, duplicate):
    with pytest.raises(RefusedError, match="the same noise"):
        duplicate(rng)


def test_repr_shows_no_key():
    rng = SecureRng()
    rng.bytes(10)
    assert repr(rng) == "SecureRng()"
    assert repr(UnsafeSeededRng(3)) == "UnsafeSeededRng(3)"
    assert not hasattr(rng, "__dict__")


def in_child(task):
    """What ``task()`` returns in a forked child."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:  # pragma: no cover - the child
        try:
            os.write(write, task())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        answer = pipe.read()
    os.waitpid(pid, 0)
    return answer


def test_a_child_never_repeats_its_parent():
    rng = SecureRng()
    rng.bytes(8)  # leaves a part-used buffer
    children = [in_child(lambda: rng.bytes(1_000)) for _ in range(3)]
    own = rng.bytes(1_000)
    assert len({own, *children}) == 4
    assert all(len(c) == 1_000 for c in children)


def test_a_child_never_repeats_buffered_draws():
    rng = SecureRng()
    for _ in range(3):
        samplers.laplace(1.0, rng=rng)  # leaves draws in reserve
    [reserve] = rng._state.reserves.values()
    assert reserve.at < len(reserve.draws)

    def draws():
        return np.array([samplers.laplace(1.0, rng=rng) for _ in range(20)]).tobytes()

    assert len({draws(), in_child(draws), in_child(draws)}) == 3


def test_a_child_born_without_the_hook_is_noticed_by_its_number(monkeypatch):
    for ask in (lambda rng: rng.bytes(8), lambda rng: samplers.laplace(1.0, rng=rng)):
        rng = SecureRng()
        rng.bytes(8)
        samplers.laplace(1.0, rng=rng)
        before, key, [reserve] = rng._state, bytes(rng._state.key), rng._state.reserves.values()
        at = before.at, reserve.at
        with monkeypatch.context() as patch:
            patch.setattr(os, "getpid", lambda: -1)
            ask(rng)
            after = rng._state
            ask(rng)
            assert rng._state is after is not before
        assert after.pid == -1
        assert (bytes(before.key), before.at, reserve.at) == (key, *at)


def test_a_fork_while_another_thread_holds_the_locks_does_not_hang():
    for rng in (SecureRng(), UnsafeSeededRng(1)):
        held, release = threading.Event(), threading.Event()

        def hold(rng=rng, held=held, release=release):
            with rng._state.lock, rng._state.take_lock:
                held.set()
                release.wait(10)

        thread = threading.Thread(target=hold)
        thread.start()
        held.wait(10)
        assert len(in_child(lambda rng=rng: rng.bytes(16) + str(samplers.gaussian(1.0, rng=rng)).encode())) > 16
        release.set()
        thread.join()


def test_a_fork_in_a_thread():
    rng, seen = SecureRng(), []
    rng.bytes(8)

    def work():
        system_rng().bytes(8)
        seen.append(in_child(lambda: rng.bytes(32) + system_rng().bytes(32)))
        seen.append(rng.bytes(32) + system_rng().bytes(32))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({piece for pair in seen for piece in (pair[:32], pair[32:])}) == 12


def at_line(line, act, ask):
    """Run ``ask()`` and ``act()`` before the ``line``-th line that it runs of the module; whether there was such a line."""
    left = [line]

    def trace(frame, event, _arg):
        if frame.f_code.co_filename != rng_module.__file__:
            return None
        if event == "line":
            left[0] -= 1
            if left[0] == 0:
                sys.settrace(None)
                act()
        return trace

    sys.settrace(trace)
    try:
        return ask(), left[0] <= 0
    finally:
        sys.settrace(None)


def interrupt():
    raise KeyboardInterrupt


REQUESTS = [lambda rng: rng.bytes(64), lambda rng: rng.bytes(5_000), lambda rng: np.float64(samplers.gaussian(1.0, rng=rng)).tobytes()]


@pytest.mark.parametrize("ask", REQUESTS)
@pytest.mark.parametrize("warm", [10, 4_090])
def test_a_fork_at_any_line_of_a_request_gives_parent_and_child_bytes_of_their_own(ask, warm):
    """As a signal handler may. Only from the two lines that return what is finished can both go on with the same."""
    shared = []
    for line in range(1, 200):
        rng = SecureRng()
        rng.bytes(warm)
        samplers.gaussian(1.0, rng=rng)
        read, write = os.pipe()
        child = []
        mine, met = at_line(line, lambda child=child: child.append(os.fork()), lambda rng=rng: ask(rng))
        if not met:
            break
        if child[0] == 0:  # pragma: no cover - the child
            try:
                os.write(write, mine + rng.bytes(64))
            finally:
                os._exit(0)
        os.close(write)
        with os.fdopen(read, "rb") as pipe:
            theirs = pipe.read()
        os.waitpid(child[0], 0)
        assert len(theirs) == len(mine) + 64
        if theirs.startswith(mine):
            shared.append(line)
            theirs = theirs[len(mine) :]
        words = [text[i : i + 8] for text in (mine, rng.bytes(64), theirs) for i in range(0, len(text), 8)]
        assert len(set(words)) == len(words)
        assert bytes(8) not in words
    assert shared in ([line - 1], [line - 2, line - 1])
    assert line > 10


@pytest.mark.parametrize("ask", REQUESTS)
def test_a_state_that_another_thread_replaces_at_any_line_harms_no_request(ask):
    """In a child whose birth nobody told of, two threads may both find out: each is then served by a whole state."""
    for line in range(1, 200):
        rng = UnsafeSeededRng(4)
        rng.bytes(10)
        samplers.gaussian(1.0, rng=rng)
        mine, met = at_line(line, lambda rng=rng: setattr(rng, "_state", rng_module._State()), lambda rng=rng: ask(rng))
        if not met:
            break
        after = mine + rng.bytes(512)
        words = [after[i : i + 8] for i in range(0, len(after), 8)]
        assert len(set(words)) == len(words)
        assert bytes(8) not in words
    assert line > 10


def test_each_thread_has_its_own_and_a_shared_one_never_repeats():
    shared, seen, own = SecureRng(), [], []

    def work():
        own.append(system_rng())
        chunks = [shared.bytes(16) for _ in range(2_000)]
        draws = [samplers.gaussian(1.0, rng=shared) for _ in range(500)]
        seen.append((chunks, draws))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(r) for r in own}) == 4
    assert len({c for chunks, _ in seen for c in chunks}) == 8_000
    assert len({d for _, draws in seen for d in draws}) == 2_000


def test_what_was_handed_out_is_wiped():
    rng = SecureRng()
    rng.bytes(100)
    assert not rng._state.buffer[:100].any()
    assert rng._state.buffer[100:].any()
    for _ in range(5):
        samplers.gaussian(1.0, rng=rng)
    [reserve] = rng._state.reserves.values()
    assert not reserve.draws[: reserve.at].any()
    assert reserve.draws[reserve.at :].all()


@pytest.mark.parametrize(("ask", "warm"), [
    (lambda rng: rng.bytes(64), 10),
    (lambda rng: rng.bytes(64), 4_090),
    (lambda rng: rng.bytes(5_000), (1 << 20) - 100),
    (lambda rng: samplers.gaussian(1.0, rng=rng), 0),
])  # fmt: skip
def test_an_interrupt_at_any_line_never_hands_out_zeros_or_repeats(ask, warm):
    """Ctrl-C at each line of the module in turn; whatever is handed out afterwards is fresh."""
    for line in range(1, 400):
        rng = UnsafeSeededRng(31)
        before = {rng.bytes(8)}
        if warm:
            rng.bytes(warm)
        for _ in range(3):
            before.add(samplers.gaussian(1.0, rng=rng))
        met = True
        with contextlib.suppress(KeyboardInterrupt):
            _, met = at_line(line, interrupt, lambda rng=rng: ask(rng))
        words = rng.bytes(2_000)
        after = [words[i : i + 8] for i in range(0, 2_000, 8)] + [samplers.gaussian(1.0, rng=rng) for _ in range(40)]
        assert len(set(after)) == len(after)
        assert not before & set(after)
        assert bytes(8) not in after
        assert 0.0 not in after
        if not met:
            break
    else:
        raise AssertionError("the request is longer than was tried")
    assert line > 10


def test_a_request_in_the_middle_of_a_request_is_served_elsewhere():
    for rng in (SecureRng(), UnsafeSeededRng(2)):
        rng.bytes(8)
        samplers.gaussian(1.0, rng=rng)
        state, [reserve] = rng._state, rng._state.reserves.values()
        at, position = state.at, reserve.at
        state.owner = state.taker = threading.get_ident()
        with state.lock, state.take_lock:
            assert len({rng.bytes(8) for _ in range(5)}) == 5
            assert len({samplers.gaussian(1.0, rng=rng) for _ in range(5)}) == 5
        assert (state.at, reserve.at) == (at, position)


def test_fill_wants_a_contiguous_array():
    rng = SecureRng()
    out = np.zeros((50, 40), np.uint64)
    rng.fill(out)
    assert out.all()
    fixed = np.zeros(3)
    fixed.flags.writeable = False
    for bad in (out[:, ::2], np.array([None]), fixed):
        with pytest.raises(InputError, match="contiguous"):
            rng.fill(bad)


def test_reserves_are_few_and_wiped_when_dropped():
    rng = SecureRng()
    samplers.gaussian(1.0, rng=rng)
    [first] = rng._state.reserves.values()
    for i in range(100):
        samplers.gaussian(2.0 + i, rng=rng)
    assert len(rng._state.reserves) == 64
    assert first not in rng._state.reserves.values()
    assert not first.draws.any()


def test_a_refused_law_leaves_no_reserve():
    rng = SecureRng()
    with pytest.raises(InputError):
        samplers.gaussian(-1.0, rng=rng)
    assert not rng._state.reserves
    samplers.gaussian(1.0, rng=rng)
    with pytest.raises(InputError):
        samplers.gaussian(True, rng=rng)


def test_seeded_is_reproducible_and_not_private():
    a, b = UnsafeSeededRng(7), UnsafeSeededRng(7)
    assert not a.private
    assert SecureRng().private
    assert [samplers.gaussian(1.0, rng=a) for _ in range(100)] == [samplers.gaussian(1.0, rng=b) for _ in range(100)]
    assert samplers.laplace(2.0, 10_000, a).tolist() == samplers.laplace(2.0, 10_000, b).tolist()
    assert UnsafeSeededRng(8).bytes(8) != UnsafeSeededRng(7).bytes(8)


@pytest.mark.parametrize("seed", [-1, 1.0, "1", None, True, 1 << 256])
def test_bad_seeds(seed):
    with pytest.raises(InputError, match="seed="):
        UnsafeSeededRng(seed)


@pytest.mark.parametrize("bad", [-1, 1.0, "1", None, True, 1 << 41])
def test_bad_counts(bad):
    for method in ("bytes", "bits", "uint8", "uint16", "uint32", "uint64"):
        with pytest.raises(InputError, match="count="):
            getattr(SecureRng(), method)(bad)


@pytest.mark.parametrize("bad", [0, -1, 1.0, "1", None, True])
def test_bad_bounds(bad):
    with pytest.raises(InputError, match="bound="):
        SecureRng().below(bad)
    assert SecureRng().below(np.int64(1)) == 0


class Plain:
    """Somebody else's source: only what the contract asks."""

    private = True

    def bytes(self, count):
        return os.urandom(count)

    def bits(self, count):
        return int.from_bytes(os.urandom((count + 7) // 8), "big") >> (-count % 8)

    def below(self, bound):
        return self.bits(128) % bound


def test_any_source_of_the_contract_will_do():
    plain = Plain()
    wrapped = array_rng(plain)
    assert wrapped.private
    assert array_rng(wrapped) is wrapped
    assert wrapped.uint8(3).shape == wrapped.uint16(3).shape == wrapped.uint32(3).shape == wrapped.uint64(3).shape == (3,)
    for sampler in (samplers.discrete_laplace, samplers.discrete_gaussian, samplers.rounded_laplace, samplers.rounded_gaussian):
        assert isinstance(sampler(1000.0, rng=plain), int)
        assert sampler(2.0, 3, plain).shape == (3,)
    assert isinstance(samplers.laplace(1.0, rng=plain), float)
    assert samplers.uniform_below(3, rng=plain) in range(3)
    with pytest.raises(InputError, match="rng="):
        array_rng(np.random.default_rng())
    grid = np.zeros((2, 3), np.uint64)
    wrapped.fill(grid)
    assert len(set(grid.flat)) == 6


@pytest.mark.parametrize(
    "said",
    [False, None, 0, 1, "no", "True", lambda: False],
    ids=lambda said: f"{type(said).__name__} {said if not callable(said) else ''}".strip(),
)
def test_a_source_is_private_only_if_it_says_so(said):
    source = Plain()
    source.private = said
    assert array_rng(source).private is False


def test_a_source_that_gives_too_few_bytes_is_refused():
    class Short(Plain):
        def bytes(self, _count):
            return b"x"

    for ask in (lambda: samplers.gaussian(1.0, 5, Short()), lambda: array_rng(Short()).fill(np.zeros(4))):
        with pytest.raises(EntropyError, match="returned 1 bytes"):
            ask()
