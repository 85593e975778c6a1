"""Keys, checkpoints, receipts and anchors: what is made can be checked, and nothing else passes."""

import base64
import json
import os
import pickle
import resource
import stat
import threading
from datetime import UTC, datetime, timedelta, timezone
from hashlib import sha256
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, PublicFormat

from dither.core import events as ev
from dither.core.errors import DecodeError, InputError, LedgerError, TamperError
from dither.core.plans import Charge, Receipt, State
from dither.core.units import Guarantee, PrivacyUnit
from dither.ledger import merkle, seal

NOW = datetime(2026, 11, 19, 6, tzinfo=UTC)


def entry_hash(i):
    return sha256(str(i).encode()).hexdigest()


# ------------------------------------------------------------------------------------------------ keys


def test_a_key_is_made_once_and_only_for_its_owner(tmp_path):
    old = os.umask(0)
    try:
        made = seal.Sealer.open(tmp_path / "book.key")
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "book.key").stat().st_mode) == 0o600
    assert (tmp_path / "book.key").read_bytes().startswith(b"-----BEGIN PRIVATE KEY-----")
    assert seal.read_public_key(tmp_path / "book.pub") == made.public_key
    assert seal.Sealer.open(tmp_path / "book.key").public_key == made.public_key
    assert sorted(p.name for p in tmp_path.iterdir()) == ["book.key", "book.pub"]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660, 0o610, 0o601])
def test_a_key_that_others_may_read_is_refused(tmp_path, mode):
    seal.Sealer.open(tmp_path / "book.key")
    (tmp_path / "book.key").chmod(mode)
    with pytest.raises(LedgerError, match=r"may be read by others.*chmod 600"):
        seal.Sealer.open(tmp_path / "book.key")


def test_a_password_must_be_the_right_one(tmp_path, monkeypatch):
    path = tmp_path / "book.key"
    monkeypatch.setenv(seal.PASSWORD_VARIABLE, "right")
    made = seal.Sealer.open(path)
    assert b"ENCRYPTED" in path.read_bytes()
    assert seal.Sealer.open(path).public_key == made.public_key
    monkeypatch.setenv(seal.PASSWORD_VARIABLE, "wrong")
    with pytest.raises(LedgerError, match="does not open it"):
        seal.Sealer.open(path)
    monkeypatch.delenv(seal.PASSWORD_VARIABLE)
    with pytest.raises(LedgerError, match="is not set"):
        seal.Sealer.open(path)
    plain = tmp_path / "plain.key"
    seal.Sealer.open(plain)
    monkeypatch.setenv(seal.PASSWORD_VARIABLE, "right")
    with pytest.raises(LedgerError, match="not encrypted"):
        seal.Sealer.open(plain)


def test_what_is_no_key_is_one_clear_error(tmp_path):
    path = tmp_path / "book.key"
    for held in (b"", b"nonsense", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"):
        path.write_bytes(held)
        path.chmod(0o600)
        with pytest.raises(LedgerError, match="damaged"):
            seal.Sealer.open(path)
    with pytest.raises(LedgerError, match="folder does not exist"):
        seal.Sealer.open(tmp_path / "nowhere" / "book.key")
    (tmp_path / "folder.key").mkdir()
    with pytest.raises(LedgerError, match="not a file"):
        seal.Sealer.open(tmp_path / "folder.key")


def test_a_key_of_another_kind_is_refused(tmp_path):
    other = X25519PrivateKey.generate()
    path = tmp_path / "book.key"
    path.write_bytes(other.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    path.chmod(0o600)
    with pytest.raises(LedgerError, match="expected an Ed25519 key"):
        seal.Sealer.open(path)
    (tmp_path / "x.pub").write_bytes(other.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    with pytest.raises(InputError, match="no Ed25519 public key"):
        seal.read_public_key(tmp_path / "x.pub")


def test_a_pipe_or_a_device_is_no_key_and_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe.key", 0o600)  # which nobody writes: an ordinary opening would wait for ever
    for path in (tmp_path / "pipe.key", "/dev/zero"):  # and this one never ends
        with pytest.raises(LedgerError, match="not a file"):
            seal.Sealer.open(path)
        with pytest.raises(InputError, match="not a file"):
            seal.read_public_key(path)
        with pytest.raises(LedgerError, match="not a file"):
            list(seal.anchors(path))
        with pytest.raises(LedgerError, match="not a file"):
            seal.last_anchor(path)
        with pytest.raises(LedgerError, match="not a file"):
            seal.AnchorFile(Path(path)).anchor(0, entry_hash(0), NOW)


def test_a_path_that_is_none_is_one_clear_error():
    for ask in (
        lambda: seal.Sealer.open("a\0b"),
        lambda: seal.read_public_key("a\0b"),
        lambda: list(seal.anchors("a\0b")),
        lambda: seal.AnchorFile(Path("a\0b")).anchor(0, entry_hash(0), NOW),
    ):
        with pytest.raises((InputError, LedgerError), match="path of a file"):
            ask()


def test_any_bytes_are_a_password_but_not_too_many(tmp_path, monkeypatch):
    monkeypatch.setenv(seal.PASSWORD_VARIABLE, os.fsdecode(b"\xff\xfe not UTF-8"))
    made = seal.Sealer.open(tmp_path / "book.key")
    assert seal.Sealer.open(tmp_path / "book.key").public_key == made.public_key
    monkeypatch.setenv(seal.PASSWORD_VARIABLE, "x" * 2_000)
    with pytest.raises(LedgerError, match="too long"):
        seal.Sealer.open(tmp_path / "other.key")
    assert not (tmp_path / "other.key").exists()


def test_a_key_of_a_kind_that_is_not_known_is_refused(tmp_path):
    known = ec.generate_private_key(ec.SECP256R1())
    secret = known.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    public = known.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    curve, other = bytes.fromhex("06082a8648ce3d030107"), bytes.fromhex("06082a8648ce3d030199")  # a curve that nobody has
    for name, kind, held in (("x.key", b"PRIVATE", secret), ("x.pub", b"PUBLIC", public)):
        pem = base64.encodebytes(held.replace(curve, other))
        (tmp_path / name).write_bytes(b"-----BEGIN %b KEY-----\n%b-----END %b KEY-----\n" % (kind, pem, kind))
        (tmp_path / name).chmod(0o600)
    with pytest.raises(LedgerError, match="cannot be used"):
        seal.Sealer.open(tmp_path / "x.key")
    with pytest.raises(InputError, match="no Ed25519 public key"):
        seal.read_public_key(tmp_path / "x.pub")


def test_the_public_half_must_be_that_of_the_key(tmp_path):
    made = seal.Sealer.open(tmp_path / "a.key")
    seal.Sealer.open(tmp_path / "b.key")
    (tmp_path / "a.pub").write_bytes((tmp_path / "b.pub").read_bytes())
    with pytest.raises(TamperError, match=r"a\.pub"):
        seal.Sealer.open(tmp_path / "a.key")
    (tmp_path / "a.pub").write_text(f"{made.public_key}\n")
    assert seal.Sealer.open(tmp_path / "a.key").public_key == made.public_key
    with pytest.raises(InputError, match="cannot be read"):
        seal.read_public_key(tmp_path / "none.pub")


def test_many_who_open_at_once_get_one_key(tmp_path):
    found, start = [], threading.Barrier(8)

    def open_it():
        start.wait()
        found.append(seal.Sealer.open(tmp_path / "book.key").public_key)

    threads = [threading.Thread(target=open_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == ["book.key", "book.pub"]


def test_a_key_is_never_shown_or_copied():
    sealer = seal.Sealer.ephemeral()
    assert repr(sealer) == f"Sealer(public_key='{sealer.public_key}')"
    with pytest.raises(InputError, match="cannot be copied"):
        pickle.dumps(sealer)


def test_a_signature_has_one_spelling_and_one_message():
    sealer = seal.Sealer.ephemeral()
    made = sealer.sign(b"text")
    assert seal.check(sealer.public_key, b"text", made)
    assert not seal.check(sealer.public_key, b"text", made.upper())
    assert not seal.check(seal.Sealer.ephemeral().public_key, b"text", made)
    order = 2**252 + 27742317777372353535851937790883648493  # s + order is the same number on the curve
    malleable = made[:64] + ((int.from_bytes(bytes.fromhex(made[64:]), "little") + order) % 2**256).to_bytes(32, "little").hex()
    for other in (None, "", made[:-1], made + "0", f" {made[1:]}", made.encode(), malleable):
        assert not seal.check(sealer.public_key, b"text", other)
    for place in range(128):
        flipped = f"{int(made[place], 16) ^ 1:x}"
        assert not seal.check(sealer.public_key, b"text", made[:place] + flipped + made[place + 1 :])
    with pytest.raises(InputError, match="public_key"):
        seal.check("XY" * 32, b"text", made)


def test_a_statement_of_one_kind_never_passes_for_another():
    sealer = seal.Sealer.ephemeral()
    signature = sealer.state("anchor", {"n": 1})
    assert seal.check_stated(sealer.public_key, "anchor", {"n": 1}, signature)
    assert not seal.check_stated(sealer.public_key, "trailer", {"n": 1}, signature)
    assert not seal.check_stated(sealer.public_key, "anchor", {"n": 2}, signature)
    assert seal.stated("trailer", {"statement": "dither anchor 1"}) != seal.stated("anchor", {})


# ------------------------------------------------------------------------------------------------ checkpoints and trailers


def test_a_checkpoint_is_of_one_book_one_root_one_count():
    sealer = seal.Sealer.ephemeral()
    peaks = merkle.grow((), 0, [entry_hash(i) for i in range(5)])
    body = seal.checkpoint(sealer, "book", peaks, 5)
    assert body["root"] == merkle.root(peaks, 5)
    assert seal.check_checkpoint(sealer.public_key, "book", body)
    for changed in ({"count": 6}, {"root": entry_hash(1)}, {"signature": None}, {"signature": "00" * 64}):
        assert not seal.check_checkpoint(sealer.public_key, "book", {**body, **changed})
    assert not seal.check_checkpoint(sealer.public_key, "other", body)
    assert seal.checkpoint(None, "book", peaks, 5)["signature"] is None


def test_a_trailer_is_of_one_book_one_end():
    sealer = seal.Sealer.ephemeral()
    text = seal.trailer(sealer, "book", count=5, head=entry_hash(4), root_hash=entry_hash("root"), at=NOW)
    body = json.loads(text)
    assert sorted(body) == ["at", "count", "head", "root", "signature"]
    assert seal.check_trailer(sealer.public_key, "book", body)
    later = {"at": "2026-11-19T06:00:00.000001Z"}
    for changed in ({"count": 4}, {"head": entry_hash(3)}, {"root": entry_hash(1)}, later, {"signature": None}):
        assert not seal.check_trailer(sealer.public_key, "book", {**body, **changed})
    assert not seal.check_trailer(sealer.public_key, "other", body)


# ------------------------------------------------------------------------------------------------ receipts

UNIT = PrivacyUnit(dataset="events", key="user_id")


def receipt(sealer, **changed):
    charge = Charge(id="c1", account=("acme", "ads"), unit=UNIT, event=ev.PureDp(0.1), plan_digest="sha256:0", purpose="weekly report")
    facts = {"charge_id": "c1", "state": State.RESERVED, "entry": 7, "head": entry_hash(7), "at": NOW}
    left = {"spent": Guarantee(0.1, 0, UNIT), "remaining": Guarantee(float("inf"), 1e-6, UNIT, "local")}
    return seal.receipt_text(sealer, Receipt(**{**facts, **left, **changed}), charge, book="b1")


def test_a_receipt_says_what_was_signed():
    sealer = seal.Sealer.ephemeral()
    held = seal.check_receipt(receipt(sealer), sealer.public_key)
    assert (held.book, held.charge, held.state, held.entry, held.entry_hash) == ("b1", "c1", State.RESERVED, 7, entry_hash(7))
    assert (held.account, held.unit, held.purpose, held.head) == (("acme", "ads"), UNIT, "weekly report", (7, entry_hash(7)))
    assert held.event == ev.event_digest(ev.PureDp(0.1))
    assert held.spent == Guarantee(0.1, 0, UNIT)
    assert held.remaining == Guarantee(float("inf"), 1e-6, UNIT, "local")
    assert held.at == "2026-11-19T06:00:00.000000Z"


def test_any_change_of_a_receipt_is_found():
    sealer = seal.Sealer.ephemeral()
    text = receipt(sealer)
    for place in range(len(text)):
        changed = text[:place] + chr(ord(text[place]) ^ 1) + text[place + 1 :]
        with pytest.raises((TamperError, DecodeError)):
            seal.check_receipt(changed, sealer.public_key)
    for name in json.loads(text):
        with pytest.raises(DecodeError):
            seal.check_receipt(json.dumps({k: v for k, v in json.loads(text).items() if k != name}), sealer.public_key)
    with pytest.raises(TamperError):
        seal.check_receipt(text, seal.Sealer.ephemeral().public_key)
    for other in ("", "[]", "null", "{", "7", b"", "[" * 10_000, '{"a":' * 10_000):
        with pytest.raises(DecodeError):
            seal.check_receipt(other, sealer.public_key)
    for other in (None, 7, {}, Path("receipt")):
        with pytest.raises(InputError, match="receipt="):
            seal.check_receipt(other, sealer.public_key)


def test_a_receipt_of_another_format_is_told_so():
    sealer = seal.Sealer.ephemeral()
    facts = {k: v for k, v in json.loads(receipt(sealer)).items() if k != "signature"}

    def signed(**changed):
        return json.dumps({**facts, **changed, "signature": sealer.state("receipt", {**facts, **changed})})

    with pytest.raises(DecodeError, match="dither-receipt-1"):
        seal.check_receipt(signed(format="dither-receipt-9"), sealer.public_key)
    for changed in ({"state": "paid"}, {"head": []}, {"unit": {}}, {"spent": {"epsilon": -1}}, {"account": None}):
        with pytest.raises(DecodeError, match="update dither"):
            seal.check_receipt(signed(**changed), sealer.public_key)


def test_a_receipt_is_of_its_charge():
    with pytest.raises(InputError, match="charge"):
        receipt(seal.Sealer.ephemeral(), charge_id="c2")


def test_times_need_a_zone_and_are_written_in_utc():
    with pytest.raises(InputError, match="time zone"):
        seal.time_text(datetime(2026, 1, 1))  # noqa: DTZ001 - that is what is refused
    india = timezone(timedelta(hours=5, minutes=30))
    assert seal.time_text(datetime(2026, 11, 19, 11, 30, tzinfo=india)) == "2026-11-19T06:00:00.000000Z"
    with pytest.raises(InputError, match="year"):
        seal.time_text(datetime.min.replace(tzinfo=india))
    assert [seal.is_time(t) for t in ("2026-02-30T00:00:00.000000Z", "٢٠٢٦-11-19T06:00:00.000000Z", None, 7)] == [False] * 4


# ------------------------------------------------------------------------------------------------ anchors


def anchored(path, sealer, count):
    file = seal.AnchorFile(path, sealer)
    for n in range(count):
        file.anchor(n, entry_hash(n), NOW + timedelta(seconds=n))


def test_anchors_are_read_as_they_were_written(tmp_path):
    path, sealer = tmp_path / "anchors", seal.Sealer.ephemeral()
    assert seal.last_anchor(path) is None
    anchored(path, sealer, 3)
    found = list(seal.anchors(path))
    assert [(a.n, a.hash) for a in found] == [(n, entry_hash(n)) for n in range(3)]
    assert all(a.signed_by(sealer.public_key) for a in found)
    assert not found[0].signed_by(seal.Sealer.ephemeral().public_key)
    assert seal.last_anchor(path) == found[2]


def test_the_last_anchor_is_the_highest_when_writers_cross(tmp_path):
    file = seal.AnchorFile(tmp_path / "anchors")
    for n in (0, 2, 1):
        file.anchor(n, entry_hash(n), NOW)
    assert seal.last_anchor(file.path).n == 2
    assert next(seal.anchors(file.path)).signature is None


def test_the_last_anchor_of_a_long_file_is_found_from_its_end(tmp_path):
    path = tmp_path / "anchors"
    anchored(path, None, 600)
    assert path.stat().st_size > 65_536
    assert seal.last_anchor(path).n == 599
    assert len(list(seal.anchors(path))) == 600


def test_a_torn_last_line_is_left_out_and_cut_off_by_the_next(tmp_path):
    path, sealer = tmp_path / "anchors", seal.Sealer.ephemeral()
    anchored(path, sealer, 3)
    whole = path.read_bytes()
    second = whole[: whole.rindex(b"\n", 0, -1) + 1]
    for cut in range(len(second), len(whole)):
        path.write_bytes(whole[:cut])
        assert [a.n for a in seal.anchors(path)] == [0, 1]
        assert seal.last_anchor(path).n == 1
    seal.AnchorFile(path, sealer, durable=True).anchor(9, entry_hash(9), NOW)
    assert [a.n for a in seal.anchors(path)] == [0, 1, 9]
    path.write_bytes(b"torn")
    assert seal.last_anchor(path) is None
    seal.AnchorFile(path, sealer).anchor(9, entry_hash(9), NOW)
    assert [a.n for a in seal.anchors(path)] == [9]


def test_any_other_damage_of_anchors_is_found(tmp_path):
    path, sealer = tmp_path / "anchors", seal.Sealer.ephemeral()
    anchored(path, sealer, 2)
    whole = path.read_bytes()
    for place in range(len(whole) - 1):
        changed = bytearray(whole)
        changed[place] ^= 1
        path.write_bytes(changed)
        try:
            found = list(seal.anchors(path))
        except TamperError:
            continue
        assert not all(a.signed_by(sealer.public_key) for a in found)
    for line in (b"{}\n", b"\n", b"null\n", b"\xff\n", b'{"n":-1}\n', whole[:-1] + b" \n"):
        path.write_bytes(line + whole)
        with pytest.raises(TamperError, match="damaged"):
            list(seal.anchors(path))
        with pytest.raises(TamperError, match="damaged"):
            seal.last_anchor(path)


def test_more_than_a_crash_can_leave_is_damage_and_nothing_is_cut_off(tmp_path):
    path = tmp_path / "anchors"
    path.write_bytes(b"x" * 200_000)
    for ask in (
        lambda: list(seal.anchors(path)),
        lambda: seal.last_anchor(path),
        lambda: seal.AnchorFile(path).anchor(0, entry_hash(0), NOW),
    ):
        with pytest.raises(TamperError, match="damaged"):
            ask()
    assert path.stat().st_size == 200_000


def test_a_file_that_can_grow_no_more_keeps_whole_lines(tmp_path):
    path = tmp_path / "anchors"
    seal.AnchorFile(path).anchor(0, entry_hash(0), NOW)
    size = path.stat().st_size
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for room in (1, size // 2, 0):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + room, hard))
        try:
            with pytest.raises(LedgerError, match=r"cannot grow|cannot be written"):
                seal.AnchorFile(path).anchor(1, entry_hash(1), NOW)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert path.stat().st_size == size
    seal.AnchorFile(path).anchor(1, entry_hash(1), NOW)
    assert [a.n for a in seal.anchors(path)] == [0, 1]


def test_many_writers_tear_nothing(tmp_path):
    path = tmp_path / "anchors"

    def write(first):
        file = seal.AnchorFile(path)
        for n in range(first, first + 50):
            file.anchor(n, entry_hash(n), NOW)

    threads = [threading.Thread(target=write, args=(50 * i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(a.n for a in seal.anchors(path)) == list(range(200))


def test_anchors_that_cannot_be_written_or_read_are_one_clear_error(tmp_path):
    with pytest.raises(LedgerError, match="cannot be written"):
        seal.AnchorFile(tmp_path / "nowhere" / "anchors").anchor(0, entry_hash(0), NOW)
    with pytest.raises(LedgerError, match="cannot be read"):
        list(seal.anchors(tmp_path / "none"))
    with pytest.raises(LedgerError, match=r"cannot grow|cannot be written"):
        seal.AnchorFile(Path("/dev/full")).anchor(0, entry_hash(0), NOW)
    with pytest.raises(InputError, match="hash"):
        seal.AnchorFile(tmp_path / "anchors").anchor(0, "abc", NOW)
    with pytest.raises(InputError, match="n="):
        seal.AnchorFile(tmp_path / "anchors").anchor(-1, entry_hash(0), NOW)
