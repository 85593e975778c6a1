"""Trees: those of RFC 6962 by its definition and by published values; every proof passes, and nothing near one does."""

from hashlib import sha256

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dither.core.errors import InputError
from dither.ledger import merkle

# ------------------------------------------------------------------------------------------------ the definitions, word by word


def slow_root(leaves):
    """RFC 6962, 2.1, over any bytes."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return sha256(b"\0" + leaves[0]).digest()
    k = largest_power_below(len(leaves))
    return sha256(b"\1" + slow_root(leaves[:k]) + slow_root(leaves[k:])).digest()


def slow_inclusion(leaves, m):
    """RFC 6962, 2.1.1."""
    if len(leaves) == 1:
        return []
    k = largest_power_below(len(leaves))
    return [*slow_inclusion(leaves[:k], m), slow_root(leaves[k:])] if m < k else [*slow_inclusion(leaves[k:], m - k), slow_root(leaves[:k])]


def slow_consistency(leaves, m, whole=True):
    """RFC 6962, 2.1.2."""
    if m == len(leaves):
        return [] if whole else [slow_root(leaves)]
    k = largest_power_below(len(leaves))
    if m <= k:
        return [*slow_consistency(leaves[:k], m, whole), slow_root(leaves[k:])]
    return [*slow_consistency(leaves[k:], m - k, False), slow_root(leaves[:k])]


def largest_power_below(n):
    k = 1
    while 2 * k < n:
        k *= 2
    return k


def entry_hash(i):
    return sha256(str(i).encode()).hexdigest()


HASHES = [entry_hash(i) for i in range(65)]
LEAVES = [bytes.fromhex(h) for h in HASHES]
ROOTS = [slow_root(LEAVES[:n]).hex() for n in range(65)]
ROWS = ["", "00", "10", "2021", "3031", "40414243", "5051525354555657", "606162636465666768696a6b6c6d6e6f"]
"""The leaves of the Certificate Transparency project's own test vectors, and the roots over the first 0, 1, …, 8."""
PUBLISHED = [
    "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
]


def test_roots_are_the_published_ones():
    tree, leaves = merkle.Mountain(), [bytes.fromhex(row) for row in ROWS]
    for n, wanted in enumerate(PUBLISHED):
        assert tree.root == merkle.root(tree.peaks, n) == slow_root(leaves[:n]).hex() == wanted
        if n < len(leaves):
            tree.add(leaves[n])


def test_the_oracle_has_the_published_proofs():
    leaves = [bytes.fromhex(row) for row in ROWS]
    assert [step.hex() for step in slow_inclusion(leaves, 0)] == [
        "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
        "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
        "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
    ]
    assert [step.hex() for step in slow_inclusion(leaves, 5)] == [
        "bc1a0643b12e4d2d7c77918f44e0f4f79a838b6cf9ec5b5c283e1f4d88599e6b",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        PUBLISHED[4],
    ]
    assert [step.hex() for step in slow_consistency(leaves, 6)] == [
        "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
        "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
        PUBLISHED[4],
    ]


# ------------------------------------------------------------------------------------------------ beside the oracle


def test_the_tree_grows_as_the_definition_says():
    for n in range(65):
        peaks = merkle.grow((), 0, HASHES[:n])
        assert len(peaks) == n.bit_count()
        assert merkle.root(peaks, n) == ROOTS[n]
        for middle in range(n + 1):
            assert merkle.grow(merkle.grow((), 0, HASHES[:middle]), middle, HASHES[middle:n]) == peaks
    assert len(set(ROOTS)) == 65


def test_every_proof_is_that_of_the_definition_and_passes():
    for n in range(1, 65):
        for index in range(n):
            proof = merkle.inclusion(HASHES[:n], index)
            assert list(proof) == [step.hex() for step in slow_inclusion(LEAVES[:n], index)]
            assert merkle.check_inclusion(ROOTS[n], n, index, HASHES[index], proof)
        for old in range(1, n + 1):
            proof = merkle.consistency(HASHES[:n], old)
            assert list(proof) == [step.hex() for step in slow_consistency(LEAVES[:n], old)]
            assert merkle.check_consistency(old, ROOTS[old], n, ROOTS[n], proof)


def test_no_proof_passes_for_another_place_size_entry_or_root():
    for n in range(1, 34):
        for index in range(n):
            proof = merkle.inclusion(HASHES[:n], index)
            for other in range(34):
                assert merkle.check_inclusion(ROOTS[n], n, other, HASHES[index], proof) == (other == index)
                assert merkle.check_inclusion(ROOTS[n], n, index, HASHES[other], proof) == (other == index)
                assert merkle.check_inclusion(ROOTS[other], n, index, HASHES[index], proof) == (other == n)
        for old in range(1, n + 1):
            proof = merkle.consistency(HASHES[:n], old)
            for other in range(34):
                assert merkle.check_consistency(old, ROOTS[other], n, ROOTS[n], proof) == (other == old)
                assert merkle.check_consistency(old, ROOTS[old], n, ROOTS[other], proof) == (other == n)
                assert merkle.check_consistency(other, ROOTS[old], n, ROOTS[n], proof) == (other == old)


def test_another_size_of_tree_needs_another_root():
    """A path can be right for two sizes where the shape around it is the same; it is the root that tells them apart."""
    for n in range(1, 34):
        for index in range(n):
            proof = merkle.inclusion(HASHES[:n], index)
            assert not any(merkle.check_inclusion(ROOTS[size], size, index, HASHES[index], proof) for size in range(34) if size != n)


def test_no_step_can_be_dropped_doubled_swapped_or_added():
    for n in range(2, 34):
        for index in range(n):
            proof = list(merkle.inclusion(HASHES[:n], index))
            for changed in rearranged(proof):
                assert not merkle.check_inclusion(ROOTS[n], n, index, HASHES[index], changed)
        for old in range(1, n + 1):
            proof = list(merkle.consistency(HASHES[:n], old))
            for changed in rearranged(proof):
                assert not merkle.check_consistency(old, ROOTS[old], n, ROOTS[n], changed)


def rearranged(proof):
    yield [*proof, HASHES[-1]]
    yield [HASHES[-1], *proof]
    for i in range(len(proof)):
        yield proof[:i] + proof[i + 1 :]
        yield [*proof[: i + 1], *proof[i:]]
        if i and proof[i] != proof[i - 1]:
            yield [*proof[: i - 1], proof[i], proof[i - 1], *proof[i + 1 :]]


@pytest.mark.parametrize("sizes", [range(1, 14), pytest.param(range(14, 41), marks=pytest.mark.slow)], ids=["to 13", "to 40"])
def test_no_bit_of_a_proof_can_be_changed(sizes):
    """Every single bit of every step of every proof, one by one."""
    for n in sizes:
        for index in range(n):
            proof = list(merkle.inclusion(HASHES[:n], index))
            assert not any(merkle.check_inclusion(ROOTS[n], n, index, HASHES[index], changed) for changed in flipped(proof))
        for old in range(1, n + 1):
            proof = list(merkle.consistency(HASHES[:n], old))
            assert not any(merkle.check_consistency(old, ROOTS[old], n, ROOTS[n], changed) for changed in flipped(proof))


def test_no_bit_of_an_entry_or_root_can_be_changed():
    for n in range(1, 34):
        proof, index = merkle.inclusion(HASHES[:n], n // 2), n // 2
        assert not any(merkle.check_inclusion(ROOTS[n], n, index, entry, proof) for (entry,) in flipped([HASHES[index]]))
        assert not any(merkle.check_inclusion(root, n, index, HASHES[index], proof) for (root,) in flipped([ROOTS[n]]))
        old, proof = 1 + n // 2, merkle.consistency(HASHES[:n], min(1 + n // 2, n))
        old = min(old, n)
        assert not any(merkle.check_consistency(old, root, n, ROOTS[n], proof) for (root,) in flipped([ROOTS[old]]))
        assert not any(merkle.check_consistency(old, ROOTS[old], n, root, proof) for (root,) in flipped([ROOTS[n]]))


def flipped(proof):
    for i, step in enumerate(proof):
        number = int(step, 16)
        for bit in range(256):
            yield [*proof[:i], f"{number ^ (1 << bit):064x}", *proof[i + 1 :]]


@settings(max_examples=60)
@given(n=st.integers(2, 300), data=st.data())
def test_a_tree_with_one_leaf_changed_has_no_proof(n, data):
    leaves = [entry_hash(i) for i in range(n)]
    index, changed = data.draw(st.integers(0, n - 1)), data.draw(st.integers(0, n - 1))
    old = data.draw(st.integers(1, n))
    other = [*leaves[:changed], entry_hash("other"), *leaves[changed + 1 :]]
    found = merkle.root(merkle.grow((), 0, other), n)
    assert not merkle.check_inclusion(found, n, index, leaves[index], merkle.inclusion(leaves, index))
    before = merkle.root(merkle.grow((), 0, leaves[:old]), old)
    assert merkle.check_consistency(old, before, n, found, merkle.consistency(other, old)) == (changed >= old)


def test_a_node_never_passes_for_an_entry():
    """Leaves and nodes are hashed apart (0x00 and 0x01), so no tree of fewer entries has the root of one of more."""
    left, right = (sha256(b"\0" + leaf).hexdigest() for leaf in LEAVES[:2])
    inner = sha256(bytes.fromhex(left + right)).hexdigest()
    assert merkle.root(merkle.grow((), 0, [inner]), 1) != ROOTS[2]
    assert not merkle.check_inclusion(ROOTS[2], 1, 0, inner, ())


def test_a_tree_of_a_million_million_entries_is_its_peaks():
    n = 10**12 + 1
    peaks = tuple(entry_hash(f"peak {i}") for i in range(n.bit_count()))
    assert len(merkle.grow(peaks, n, [])) == n.bit_count()
    grown = merkle.grow(peaks, n, HASHES[:7])
    assert len(grown) == (n + 7).bit_count()
    assert len(merkle.root(grown, n + 7)) == 64


# ------------------------------------------------------------------------------------------------ what is no tree

A, B = HASHES[:2]


@pytest.mark.parametrize(
    "make",
    [
        lambda: merkle.grow((), 1, []),
        lambda: merkle.grow((A,), 0, []),
        lambda: merkle.grow((A, B), 2, []),
        lambda: merkle.grow((), -1, []),
        lambda: merkle.grow((), 0.0, []),
        lambda: merkle.grow((), False, []),
        lambda: merkle.grow((), 2**63, []),
        lambda: merkle.grow((), 0, [A.upper()]),
        lambda: merkle.grow((), 0, [A[:-1]]),
        lambda: merkle.grow((), 0, [f"{A}\n"]),
        lambda: merkle.grow((), 0, [bytes.fromhex(A)]),
        lambda: merkle.grow((), 0, [None]),
        lambda: merkle.grow(("x",), 1, []),
        lambda: merkle.root((A,), 3),
        lambda: merkle.inclusion([], 0),
        lambda: merkle.inclusion([A], 1),
        lambda: merkle.inclusion([A], -1),
        lambda: merkle.inclusion([A, B], 0.5),
        lambda: merkle.inclusion([A, B], True),
        lambda: merkle.inclusion([A, B], None),
        lambda: merkle.inclusion([A, "b"], 0),
        lambda: merkle.consistency([], 1),
        lambda: merkle.consistency([A], 0),
        lambda: merkle.consistency([A], 2),
        lambda: merkle.consistency([A, B], 1.0),
        lambda: merkle.consistency([A, "b"], 1),
    ],
    ids=range(26),
)
def test_what_is_no_tree_is_refused(make):
    with pytest.raises(InputError):
        make()


STRANGE = [None, True, False, 0.0, 1.0, "1", b"1", [], {}, -1, 2**62 + 1, 2**100_000, float("nan"), float("inf")]


@pytest.mark.parametrize("strange", STRANGE, ids=range(len(STRANGE)))
def test_a_strange_proof_is_no_proof_and_no_crash(strange):
    proof = merkle.consistency(HASHES[:3], 2)
    for n, index in ((strange, 0), (2, strange), (strange, strange)):
        assert not merkle.check_inclusion(ROOTS[2], n, index, A, merkle.inclusion(HASHES[:2], 0))
    for old, n in ((strange, 3), (2, strange), (strange, strange)):
        assert not merkle.check_consistency(old, ROOTS[2], n, ROOTS[3], proof)
    assert not merkle.check_inclusion(strange, 2, 0, A, (B,))
    assert not merkle.check_inclusion(ROOTS[2], 2, 0, strange, (B,))
    assert not merkle.check_inclusion(ROOTS[2], 2, 0, A, strange)
    assert not merkle.check_inclusion(ROOTS[2], 2, 0, A, (strange,))
    assert not merkle.check_consistency(2, strange, 3, ROOTS[3], proof)
    assert not merkle.check_consistency(2, ROOTS[2], 3, strange, proof)
    assert not merkle.check_consistency(2, ROOTS[2], 3, ROOTS[3], strange)
    assert not merkle.check_consistency(2, ROOTS[2], 3, ROOTS[3], (strange,))


def test_a_proof_without_end_is_no_proof():
    endless = [A] * 10**6
    assert not merkle.check_inclusion(ROOTS[2], 2**62, 0, A, endless)
    assert not merkle.check_consistency(1, ROOTS[1], 2**62, ROOTS[2], endless)


def test_hashes_have_one_spelling():
    assert merkle.is_hash(A)
    for wrong in (A.upper(), A[:-1], A + "0", f" {A[1:]}", f"{A}\n", A.encode(), None, 7, int(A, 16), "٠" * 64):
        assert not merkle.is_hash(wrong)
