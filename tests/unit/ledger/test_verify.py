"""A true book passes; whatever is changed in it, by a stranger or by the holder of the key, is found."""

import hashlib
import json
import sys
from datetime import UTC, datetime, timedelta
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dither.core import events as ev
from dither.core.errors import InputError
from dither.core.plans import Charge, Receipt, State
from dither.core.units import Guarantee, Neighbors, PrivacyUnit
from dither.ledger import merkle, seal
from dither.ledger.entries import amount_text
from dither.ledger.gauge import UNITS, Gauge, added, taken
from dither.ledger.replay import begins
from dither.ledger.terms import Blocks, Dataset, Every, FilterSpec, Limit, Per
from dither.ledger.verify import verify, verify_file

SEALER = seal.Sealer.ephemeral()
KEY = SEALER.public_key
NOW = datetime(2026, 11, 19, 6, tzinfo=UTC)
EVENTS = PrivacyUnit(dataset="events", key="user_id")
ROWS = PrivacyUnit(dataset="rows")


def dump(body):
    return json.dumps(body, sort_keys=True, separators=(",", ":"))


class Writer:
    """Writes books line by line, true ones unless told otherwise; a second, plain implementation of the format."""

    def __init__(self, sealer=SEALER):
        self.sealer, self.name, self.at = sealer, "ab" * 16, NOW
        self.lines, self.head, self.tree = [], "0" * 64, merkle.Mountain()
        self.datasets, self.limits, self.balances, self.told, self.charges = {}, {}, {}, set(), {}
        self.add("open", book=self.name, format=1, public_key=sealer.public_key if sealer else None, versions={"dither": "0.1.0"})

    def add(self, kind, **fields):
        n = len(self.lines)
        if n and n % 1024 == 0 and kind != "checkpoint":
            made = seal.checkpoint(self.sealer, self.name, self.tree.peaks, n)
            self.add("checkpoint", **{k: v for k, v in made.items() if k != "kind"})
            n += 1
        self.at += timedelta(milliseconds=1)
        self.put(dump({"n": n, "prev": self.head, "at": seal.time_text(self.at), "by": "ann", "kind": kind, **fields}))
        return n

    def put(self, line):
        self.lines.append(line)
        self.head = hashlib.sha256(line.encode()).hexdigest()
        self.tree.add(bytes.fromhex(self.head))

    def trailer(self, **changed):
        facts = {"count": len(self.lines), "head": self.head, "root_hash": self.tree.root, "at": self.at}
        return seal.trailer(self.sealer, self.name, **facts | changed)

    def all(self):
        return [*self.lines, self.trailer()]

    # what is agreed

    def dataset(self, unit, **more):
        made = Dataset(name=unit.dataset, unit=unit, **more)
        self.datasets[made.name] = made
        self.add("dataset", dataset=made.to_dict())

    def accounts(self, *names):
        for name in names:
            self.add("account", account=name.split("/"))

    def limit(self, account, dataset, spec, per=Per.DATASET, alert_at=(0.5,), **more):
        made = Limit(id=f"L{len(self.limits) + 1}", account=account, dataset=dataset, filter=spec, per=per, alert_at=alert_at, **more)
        self.limits[made.id] = made
        self.add("limit", limit=made.to_dict())
        return made

    def move(self, source, target, epsilon, delta=0, **changed):
        after = {}
        for name, sign in ((source, -1), (target, 1)):
            old = self.limits[name].filter
            wide = old.delta + sign * Fraction(delta)
            side = old.side_delta * wide / old.delta if old.delta else old.side_delta
            after[name] = FilterSpec(kind=old.kind, epsilon=old.epsilon + sign * epsilon, delta=wide, side_delta=side, orders=old.orders)
            facts = {f: getattr(self.limits[name], f) for f in ("id", "account", "dataset", "per", "starts", "ends", "alert_at")}
            self.limits[name] = Limit(**facts, filter=after[name])
        fields = {"source": source, "target": target, "epsilon": str(Fraction(epsilon)), "delta": str(Fraction(delta))}
        self.add("move", **fields | {"filters": {k: v.to_dict() for k, v in after.items()}} | changed)

    # what is charged

    def met(self, account, dataset):
        held = (limit for limit in self.limits.values() if limit.dataset == dataset)
        return [limit for limit in held if account[: len(limit.account)] == limit.account]

    def gauge(self, limit):
        return Gauge.of(limit.filter, self.datasets[limit.dataset].unit.neighbors)

    def prices(self, limits, event):
        return {limit.id: self.gauge(limit).price(event) for limit in limits}

    def keys(self, limit, blocks):
        dataset = self.datasets[limit.dataset]
        apart = dataset.disjoint and dataset.unit.neighbors is Neighbors.ADD_REMOVE
        return blocks if dataset.blocks and (apart or limit.per is Per.BLOCK) else ("",)

    def reserve(self, name, account, unit, event, blocks=(), **changed):
        charge = {
            "id": name,
            "account": list(account),
            "unit": {"dataset": unit.dataset, "key": unit.key, "neighbors": unit.neighbors.value},
            "blocks": list(blocks),
            "event": ev.to_dict(event),
            "plan_digest": "sha256:00",
            "purpose": 'weekly "report", ,"prices":{',
        } | changed.pop("charge", {})
        limits = self.met(account, unit.dataset)
        prices = self.prices(limits, event)
        fields = {
            "charge": charge,
            "digest": f"sha256:{hashlib.sha256(dump(charge).encode()).hexdigest()}",
            "holder": "host|1",
            "prices": told(prices),
        }
        self.charges[name] = (limits, blocks, prices)
        n = self.add("reserve", **fields | changed)
        self.spend(limits, blocks, prices)
        return n

    def spend(self, limits, blocks, prices, *, back=False):
        for limit in limits:
            gauge = self.gauge(limit)
            for block in self.keys(limit, blocks):
                spent = (taken if back else added)(self.balances.get((limit.id, block), gauge.zero), prices[limit.id])
                self.balances[limit.id, block] = spent
                for share in limit.alert_at:
                    if gauge.share(spent) >= share and (limit.id, block, share) not in self.told:
                        self.told.add((limit.id, block, share))
                        self.add("alert", limit=limit.id, block=block, threshold=str(share), share=f"{gauge.share(spent):.6f}")

    def commit(self, name, event=None, release=None, **changed):
        limits, blocks, prices = self.charges[name]
        after = None
        if event is not None:
            after = self.prices(limits, event)
            self.spend(limits, blocks, prices, back=True)
            self.spend(limits, blocks, after)
        fields = {"charge": name, "event": None, "prices": None, "release": release, "recovered": False}
        if event is not None:
            fields |= {"event": ev.to_dict(event), "prices": told(after)}
        return self.add("commit", **fields | changed)

    def void(self, name, **changed):
        limits, blocks, prices = self.charges[name]
        self.spend(limits, blocks, prices, back=True)
        return self.add("void", **{"charge": name, "reason": "the source did not open"} | changed)


def told(prices):
    return {name: [amount_text(Fraction(units, UNITS)) for units in price] for name, price in prices.items()}


STEP = ev.Subsample(ev.Gaussian(8.0), ev.Poisson(0.01))


def small(sealer=SEALER):
    """One of everything."""
    book = Writer(sealer)
    book.dataset(EVENTS)
    book.dataset(ROWS, blocks=Blocks(column="region", partitions=("north", "south")))
    book.dataset(ROWS, blocks=Blocks(column="region", partitions=("north", "south", "west")))
    book.accounts("acme", "acme/ads", "acme/ops", "Íslensk")
    book.limit(("acme",), "events", FilterSpec.of(2, 1e-6), starts=NOW, ends=NOW + timedelta(days=400))
    book.limit(("acme", "ads"), "events", FilterSpec.of(1, 1e-7))
    book.limit(("acme", "ops"), "events", FilterSpec.of(1, 1e-7, kind="zcdp", side_delta=1e-8))
    book.limit(("acme",), "rows", FilterSpec.of(1), per=Per.BLOCK)
    book.reserve("c1", ("acme", "ads"), EVENTS, ev.Repeat(STEP, 3))
    book.commit("c1", release="sha256:" + "0" * 64)
    book.reserve("c2", ("acme",), ROWS, ev.PureDp(0.6), ("north", "west"))
    book.reserve("c3", ("acme", "ops"), EVENTS, ev.Repeat(ev.Gaussian(90.0), 50))
    book.commit("c3", ev.Repeat(ev.Gaussian(90.0), 20))
    book.void("c2")
    book.move("L2", "L3", Fraction(1, 4), Fraction(1, 10**9))
    what = {"what": "charge", "charge": "c9", "account": ["acme"], "dataset": "rows", "purpose": "p", "event": "sha256:" + "1" * 64}
    book.add("refusal", **what, code="over_budget", text="ε is used up")
    book.reserve("c4", ("acme",), ROWS, ev.Laplace(3.0), ("south",))
    return book


def check(book_or_lines, **more):
    lines = book_or_lines.all() if isinstance(book_or_lines, Writer) else book_or_lines
    return verify(lines, **{"public_key": KEY} | more)


def kinds(report):
    return {finding.kind for finding in report.findings}


# ------------------------------------------------------------------------------------------------ true books


def test_a_true_book_passes(tmp_path):
    book = small()
    report = check(book)
    assert report.findings == ()
    assert report.ok
    assert report.signed
    assert (report.entries, report.charges, report.open_charges, report.book) == (len(book.lines), 4, 1, "ab" * 16)
    assert report.head == book.head
    assert report.root == book.tree.root
    shares = {s.limit: s.share for s in report.limits}
    assert shares["L4"] == pytest.approx(1 / 3)
    assert [s.block for s in report.limits if s.limit == "L4"] == ["south"]
    assert str(report).startswith("The book is whole: ")
    assert json.dumps(report.to_dict())
    path = tmp_path / "book.jsonl"
    path.write_text("".join(f"{line}\n" for line in book.all()))
    assert verify_file(path, public_key=KEY) == report
    assert verify([line.encode() for line in book.all()], public_key=KEY) == report


def test_a_long_book_has_checkpoints_that_hold():
    report = check(long_book())
    assert report.findings == ()
    assert (report.checkpoints, report.entries) == (3, 3077)


def long_book(sealer=SEALER):
    book = Writer(sealer)
    book.dataset(EVENTS)
    book.accounts("acme", "acme/ads")
    book.limit(("acme",), "events", FilterSpec.of(100, 1e-6))
    book.limit(("acme", "ads"), "events", FilterSpec.of(100))
    for i in range(1534):
        book.reserve(f"c{i}", ("acme", "ads"), EVENTS, ev.PureDp(0.001))
        book.commit(f"c{i}")
    return book


def test_without_a_key_it_says_that_authenticity_was_not_checked():
    for sealer in (SEALER, None):
        report = check(small(sealer), public_key=None)
        assert report.ok
        assert not report.signed
        assert "Authenticity was not checked" in str(report)
    assert kinds(check(small(None))) == {"signature"}  # a book without seals, where a key was given


def test_what_is_no_key_is_refused():
    with pytest.raises(InputError, match="public_key"):
        verify([], public_key="nonsense")
    with pytest.raises(InputError, match="cannot be read"):
        verify_file("/nowhere/book.jsonl", public_key=None)


def test_progress_is_told():
    seen = []
    check(small(), progress=seen.append)
    assert seen == [0]


# ------------------------------------------------------------------------------------------------ bytes


@pytest.mark.parametrize("first", range(8))
def test_every_byte_with_a_flipped_bit_is_found(first):
    """Every byte of a small signed book, an eighth of the bits in each run."""
    lines = [line.encode() for line in brief().all()]
    for index, line in enumerate(lines):
        for place in range(len(line)):
            wrong = line[:place] + bytes([line[place] ^ (1 << (place + first) % 8)]) + line[place + 1 :]
            assert not check([*lines[:index], wrong, *lines[index + 1 :]]).ok, (index, place)


def brief():
    """Few lines, most kinds."""
    book = Writer()
    book.dataset(EVENTS)
    book.accounts("acme")
    book.limit(("acme",), "events", FilterSpec.of(1), alert_at=(0.5,))
    book.reserve("c1", ("acme",), EVENTS, ev.PureDp(0.75))
    book.commit("c1", release="sha256:" + "0" * 64)
    return book


def test_every_cut_is_found(tmp_path):
    path, held = tmp_path / "book.jsonl", "".join(f"{line}\n" for line in brief().all()).encode()
    path.write_bytes(held)
    assert verify_file(path, public_key=KEY).ok
    for size in range(len(held)):
        path.write_bytes(held[:size])
        assert not verify_file(path, public_key=KEY).ok, size


def test_more_bytes_are_found(tmp_path):
    path, held = tmp_path / "book.jsonl", "".join(f"{line}\n" for line in brief().all()).encode()
    for place in range(0, len(held) + 1, 23):
        for more in (b"\n", b" ", b"\r", b"\0", b"0", b"\xef\xbb\xbf"):
            path.write_bytes(held[:place] + more + held[place:])
            assert not verify_file(path, public_key=KEY).ok, (place, more)


@pytest.mark.parametrize("signed", [True, False])
def test_every_line_dropped_doubled_or_exchanged_is_found(signed):
    lines, key = small(SEALER if signed else None).all(), KEY if signed else None
    for i in range(len(lines)):
        assert not verify(lines[:i] + lines[i + 1 :], public_key=key).ok, i
        for j in range(len(lines) + 1):
            assert not verify([*lines[:j], lines[i], *lines[j:]], public_key=key).ok, (i, j)
        for j in range(i):
            swapped = list(lines)
            swapped[i], swapped[j] = lines[j], lines[i]
            assert not verify(swapped, public_key=key).ok, (i, j)


def test_a_changed_line_is_told_where_it_is():
    lines = small().all()
    wrong = lines[10].replace("ann", "bob", 1)
    report = check([*lines[:10], wrong, *lines[11:]])
    assert [(f.n, f.kind) for f in report.findings] == [(11, "chain"), (None, "trailer")] or (11, "chain") in [
        (f.n, f.kind) for f in report.findings
    ]
    assert str(report).startswith("The book is NOT what it should be")


def test_a_checkpoint_tells_of_a_change_before_it():
    lines = long_book().all()
    wrong = lines[5].replace("ann", "bob", 1)
    report = check([*lines[:5], wrong, *lines[6:]])
    assert [f.n for f in report.findings if f.kind == "checkpoint"] == [1024, 2048, 3072]


def test_findings_are_kept_to_a_hundred():
    report = check(["nonsense"] * 250)
    assert len(report.findings) == 100
    assert report.found > 250
    assert "more" in str(report)


# ------------------------------------------------------------------------------------------------ the whole book rewritten


def test_a_book_signed_with_another_key_is_found():
    other = seal.Sealer.ephemeral()
    assert kinds(check(small(other))) == {"signature"}
    forged = small(other)  # keeps the name of the true key, signs with the other
    forged.lines[0] = forged.lines[0].replace(other.public_key, KEY)
    assert not check(rechained(forged.lines, other)).ok
    assert not check(rechained(small().lines, None)).ok


def rechained(lines, sealer, change=None):
    """The same entries, numbered, chained, sealed and closed anew, as one who holds a key can."""
    book = Writer(sealer)
    book.lines, book.head, book.tree = [], "0" * 64, merkle.Mountain()
    for n, line in enumerate(lines):
        body = json.loads(line) | {"n": n, "prev": book.head}
        if body["kind"] == "checkpoint":
            body |= seal.checkpoint(sealer, book.name, book.tree.peaks, n)
        body = change(n, body) if change else body
        book.put(dump(body))
    book.at = NOW + timedelta(days=1)
    return book.all()


def test_what_was_cut_off_and_closed_anew_is_found_by_anchors_and_receipts_only(tmp_path):
    book = small()
    path = tmp_path / "anchors"
    keeper = seal.AnchorFile(path, SEALER)
    whole = rechained(book.lines, SEALER)
    keeper.anchor(len(book.lines) - 1, hashlib.sha256(whole[-2].encode()).hexdigest(), NOW)
    assert check(whole, anchors=seal.anchors(path)).ok
    cut = rechained(book.lines[:-3], SEALER)
    assert check(cut).ok  # the holder of the key closed it anew; nothing in it is wrong
    report = check(cut, anchors=seal.anchors(path))
    assert kinds(report) == {"anchor"}
    assert "entries are missing at its end" in report.findings[0].text
    changed = rechained(book.lines, SEALER, lambda n, body: body | {"by": "bob"} if n == 3 else body)
    assert check(changed).ok
    assert kinds(check(changed, anchors=seal.anchors(path))) == {"anchor"}
    broken = tmp_path / "broken"
    broken.write_text("nonsense\n")
    assert kinds(check(whole, anchors=seal.anchors(broken))) == {"anchor"}
    seal.AnchorFile(path, seal.Sealer.ephemeral()).anchor(0, hashlib.sha256(whole[0].encode()).hexdigest(), NOW)
    assert kinds(check(whole, anchors=seal.anchors(path))) == {"anchor"}


def receipt_for(book, name, n, state=State.RESERVED, head=None, **changed):
    body = json.loads(next(line for line in book.lines if f'"id":"{name}"' in line))["charge"] | changed
    unit = PrivacyUnit(**body["unit"])
    charge = Charge(
        id=body["id"],
        account=tuple(body["account"]),
        unit=unit,
        event=ev.from_dict(body["event"]),
        plan_digest=body["plan_digest"],
        purpose=body["purpose"],
    )
    hashed = hashlib.sha256(book.lines[n].encode()).hexdigest()
    left = {"spent": Guarantee(0.1, 0, unit), "remaining": Guarantee(0.9, 0, unit)}
    receipt = Receipt(charge_id=name, state=state, entry=n, head=hashed, at=NOW, **left)
    return seal.receipt_text(SEALER, receipt, charge, book=book.name, head=head)


def test_receipts_are_held_against_the_book():
    book = Writer()
    book.dataset(EVENTS)
    book.accounts("acme")
    book.limit(("acme",), "events", FilterSpec.of(1), alert_at=())
    n = book.reserve("c1", ("acme",), EVENTS, ev.PureDp(0.1))
    m = book.commit("c1")
    good = [receipt_for(book, "c1", n), receipt_for(book, "c1", m, State.COMMITTED), receipt_for(book, "c1", n, head=(m, book.head))]
    assert check(book, receipts=good).ok
    assert "Receipts were not checked" in str(check(book, receipts=good, public_key=None))
    wrong = [
        good[0].replace('"entry":', '"entry":1'),
        "{}",
        receipt_for(book, "c1", m),
        receipt_for(book, "c1", n, State.COMMITTED),
        receipt_for(book, "c1", n, purpose="another"),
        receipt_for(book, "c1", n, account=["acme", "ads"]),
        receipt_for(book, "c1", n, head=(m, "0" * 64)),
        receipt_for(book, "c1", n, head=(99, "0" * 64)),
    ]
    for text in wrong:
        assert kinds(check(book, receipts=[text])) == {"receipt"}, text
    assert kinds(check(Writer(), receipts=good)) == {"receipt"}
    forgotten = rechained([line for line in book.lines if '"c1"' not in line], SEALER)
    assert "does not hold charge 'c1'" in str(check(forgotten, receipts=good))


# ------------------------------------------------------------------------------------------------ the holder of the key lies


def lied(change):
    """One line of the small book changed, everything chained and sealed anew with the true key."""
    return check(rechained(small().lines, SEALER, change))


def at_kind(kind, nth=0, /, **fields):
    """A change of the nth entry of a kind."""
    places = [n for n, line in enumerate(small().lines) if json.loads(line)["kind"] == kind]

    def change(n, body):
        return body | fields if n == places[nth] else body

    return change


def edited(kind, nth, edit):
    places = [n for n, line in enumerate(small().lines) if json.loads(line)["kind"] == kind]

    def change(n, body):
        if n == places[nth]:
            edit(body)
        return body

    return change


def redigested(edit):
    def change(body):
        edit(body["charge"])
        body["digest"] = f"sha256:{hashlib.sha256(dump(body['charge']).encode()).hexdigest()}"

    return change


def test_rewriting_alone_changes_nothing():
    assert lied(None).ok


@pytest.mark.parametrize(
    ("change", "kind"),
    [
        (at_kind("open", format=2), "form"),
        (at_kind("open", format=True), "form"),
        (at_kind("open", book="AB" * 16), "form"),
        (at_kind("open", versions={}), "form"),
        (at_kind("open", more=1), "form"),
        (at_kind("account", 1, account=["acme", "аds"]), "charge"),
        (at_kind("account", 2, account=["acme", "adѕ"]), "terms"),
        (at_kind("account", 0, account=["other"]), "terms"),
        (at_kind("account", 3, account=["acme"]), "terms"),
        (at_kind("account", 3, account=["a", ""]), "form"),
        (at_kind("account", 3, account="acme"), "form"),
        (at_kind("account", 3, account=[{}]), "form"),
        (edited("dataset", 2, lambda b: b["dataset"]["blocks"].update(partitions=["south", "north", "west"])), "terms"),
        (edited("dataset", 2, lambda b: b["dataset"]["unit"].update(key="user_id")), "form"),
        (edited("dataset", 2, lambda b: b["dataset"].update(trust="local")), "terms"),
        (edited("dataset", 0, lambda b: b["dataset"].update(trust="nobody")), "form"),
        (edited("limit", 0, lambda b: b["limit"].update(account=["nobody"])), "terms"),
        (edited("limit", 0, lambda b: b["limit"].update(dataset="nothing")), "terms"),
        (edited("limit", 1, lambda b: b["limit"].update(id="L1")), "terms"),
        (edited("limit", 0, lambda b: b["limit"]["filter"].update(epsilon="4/2")), "form"),
        (edited("limit", 0, lambda b: b["limit"].update(ends="2026-11-19T06:00:00.001000Z")), "window"),
        (edited("limit", 0, lambda b: b["limit"].update(starts="2026-12-19T06:00:00.000000Z")), "window"),
        (edited("limit", 3, lambda b: b["limit"]["filter"].update(epsilon="1/2")), "overspent"),
        (edited("limit", 3, lambda b: b["limit"].update(alert_at=[])), "alert"),
        (edited("limit", 3, lambda b: b["limit"].update(alert_at=["1/4", "1/2"])), "alert"),
        (edited("reserve", 0, lambda b: b.update(digest="sha256:" + "0" * 64)), "charge"),
        (edited("reserve", 0, lambda b: b["charge"].update(purpose="another")), "charge"),
        (edited("reserve", 0, redigested(lambda c: c.update(purpose=""))), "form"),
        (edited("reserve", 0, redigested(lambda c: c["account"].append("nobody"))), "charge"),
        (edited("reserve", 0, redigested(lambda c: c["unit"].update(neighbors="replace"))), "charge"),
        (edited("reserve", 0, redigested(lambda c: c["unit"].update(dataset="nothing"))), "form"),
        (edited("reserve", 0, redigested(lambda c: c.update(blocks=["north"]))), "charge"),
        (edited("reserve", 1, redigested(lambda c: c.update(blocks=[]))), "charge"),
        (edited("reserve", 1, redigested(lambda c: c.update(blocks=["north", "north"]))), "charge"),
        (edited("reserve", 1, redigested(lambda c: c.update(blocks=["east"]))), "form"),
        (edited("reserve", 2, redigested(lambda c: c.update(id="c1"))), "charge"),
        (edited("reserve", 1, redigested(lambda c: c["event"].update(epsilon=0.7))), "price"),
        (edited("reserve", 1, redigested(lambda c: c["event"].update(epsilon=1))), "charge"),
        (edited("reserve", 1, redigested(lambda c: c.update(event={"event": "Gaussian", "noise_multiplier": 1.0}))), "price"),
        (edited("reserve", 1, redigested(lambda c: c.update(event=[]))), "charge"),
        (edited("reserve", 1, lambda b: b["prices"].update(L4=["3/10"])), "price"),
        (edited("reserve", 1, lambda b: b["prices"].update(L4=["6/10"])), "price"),
        (edited("reserve", 1, lambda b: b["prices"].update(L4=["-3/5"])), "price"),
        (edited("reserve", 1, lambda b: b["prices"].update(L4=["3/5", "0"])), "price"),
        (edited("reserve", 1, lambda b: b["prices"].update(L4=[["3/5"]])), "price"),
        (edited("reserve", 1, lambda b: b["prices"].update(L4="3/5")), "price"),
        (edited("reserve", 1, lambda b: b["prices"].update(L1=["1"])), "price"),
        (edited("reserve", 1, lambda b: b["prices"].clear()), "price"),
        (edited("reserve", 0, lambda b: b["prices"].pop("L1")), "price"),
        (edited("reserve", 0, lambda b: b["prices"]["L1"].__setitem__(3, "1e-60")), "price"),
        (edited("reserve", 0, lambda b: b.update(holder=7)), "form"),
        (at_kind("commit", 0, charge="c9"), "charge"),
        (at_kind("commit", 0, charge="c2"), "charge"),
        (at_kind("commit", 1, charge="c1"), "charge"),
        (at_kind("commit", 0, release="sha256:zz"), "form"),
        (at_kind("commit", 0, recovered=0), "form"),
        (at_kind("commit", 1, prices=None), "form"),
        (at_kind("commit", 1, event=ev.to_dict(ev.Repeat(ev.Gaussian(91.0), 20))), "charge"),
        (at_kind("commit", 1, event=ev.to_dict(ev.Repeat(ev.Gaussian(90.0), 51))), "charge"),
        (at_kind("commit", 1, event=ev.to_dict(ev.Repeat(ev.Gaussian(90.0), 21))), "price"),
        (edited("commit", 1, lambda b: b["prices"].pop("L1")), "price"),
        (edited("commit", 1, lambda b: b["prices"]["L3"].__setitem__(0, "1/10")), "price"),
        (edited("commit", 1, lambda b: b["prices"]["L3"].__setitem__(0, "0")), "price"),
        (at_kind("void", 0, charge="c1"), "charge"),
        (at_kind("void", 0, reason=""), "form"),
        (at_kind("move", 0, target="L2"), "terms"),
        (at_kind("move", 0, target="L9"), "form"),
        (at_kind("move", 0, epsilon="1/5"), "terms"),
        (at_kind("move", 0, delta="0"), "terms"),
        (edited("move", 0, lambda b: b["filters"]["L3"].update(epsilon="3/2")), "terms"),
        (edited("move", 0, lambda b: b["filters"]["L3"].update(side_delta="0")), "terms"),
        (edited("move", 0, lambda b: b["filters"].update(L1=b["filters"].pop("L2"))), "form"),
        (edited("limit", 1, lambda b: b["limit"]["filter"]["orders"].pop()), "terms"),
        (edited("move", 0, lambda b: b["filters"]["L3"].update(kind="advanced")), "terms"),
        (at_kind("refusal", 0, text=7), "form"),
        (at_kind("refusal", 0, event="none"), "form"),
        (at_kind("alert", 0, threshold="3/4"), "alert"),
        (at_kind("alert", 0, block="south"), "alert"),
        (at_kind("alert", 0, limit="L2", block=""), "alert"),
        (at_kind("alert", 0, share="0.9"), "alert"),
        (at_kind("alert", 0, share="1e9"), "form"),
        (at_kind("alert", 0, limit="L8"), "form"),
        (at_kind("commit", 0, by=""), "form"),
        (at_kind("commit", 0, at="2026-11-19T05:00:00.000000Z"), "time"),
        (at_kind("commit", 0, at="2026-13-19T05:00:00.000000Z"), "time"),
        (at_kind("commit", 0, at=None), "time"),
        (at_kind("commit", 0, kind="omit"), "form"),
        (at_kind("commit", 0, n=True), "form"),
        (at_kind("void", 0, n=-5), "order"),
    ],
)
def test_what_the_holder_of_the_key_writes_must_be_true(change, kind):
    report = lied(change)
    assert kind in kinds(report), str(report)


def test_entries_left_out_or_made_up_are_found_though_all_is_sealed_anew():
    lines = small().lines
    harmless = {"refusal", "commit"}  # a charge that is not committed stays charged, and a refusal spends nothing
    for i, line in enumerate(lines):
        body = json.loads(line)
        left = check(rechained(lines[:i] + lines[i + 1 :], SEALER))
        last = body["kind"] == "reserve" and i == len(lines) - 1
        spare = body["kind"] == "account" and body["account"] == ["Íslensk"]
        narrower = (
            body["kind"] == "dataset" and "west" not in body["dataset"]["blocks"]["partitions"]
            if body["kind"] == "dataset" and body["dataset"]["blocks"]
            else False
        )
        assert left.ok == (body["kind"] in harmless or last or spare or narrower or body["kind"] in {"void", "move"}), (i, str(left))
        if body["kind"] != "refusal":
            assert not check(rechained([*lines[: i + 1], line, *lines[i + 1 :]], SEALER)).ok or body["kind"] == "move", i


def test_every_alert_must_be_there():
    lines = small().lines
    alert = next(i for i, line in enumerate(lines) if '"kind":"alert"' in line)
    assert "and no alert says so" in str(check(rechained(lines[:alert] + lines[alert + 1 :], SEALER)))


def test_a_limit_holds_to_the_last_unit():
    def book(last):
        made = Writer()
        made.dataset(EVENTS)
        made.accounts("acme")
        made.limit(("acme",), "events", FilterSpec.of(1), alert_at=())
        for i in range(9):
            made.reserve(f"c{i}", ("acme",), EVENTS, ev.PureDp(0.1))
        made.reserve("last", ("acme",), EVENTS, ev.PureDp(last))
        return made

    assert check(book(0.1)).ok
    assert kinds(check(book(0.10000000000000002))) == {"overspent"}


@pytest.mark.parametrize("kind", ["approx", "advanced", "zcdp", "rdp"])
@pytest.mark.parametrize("neighbors", list(Neighbors))
def test_every_filter_is_replayed(kind, neighbors):
    unit = PrivacyUnit(dataset="events", key="user_id", neighbors=neighbors)
    gauge = Gauge.of(FilterSpec.of(1, 1e-5, kind=kind, side_delta=0 if kind == "approx" else 2e-6), neighbors)
    event = ev.ApproxDp(0.05, 1e-8) if kind in {"approx", "advanced"} else ev.Gaussian(30.0)
    book = Writer()
    book.dataset(unit)
    book.accounts("acme")
    book.limit(("acme",), "events", gauge.spec, alert_at=())
    spent = gauge.zero
    for i in range(2_000):
        spent = added(spent, gauge.price(event))
        if not gauge.fits(spent):
            break
        book.reserve(f"c{i}", ("acme",), unit, event)
    assert i > 10
    assert check(book).ok
    book.reserve("one more", ("acme",), unit, event)
    assert kinds(check(book)) == {"overspent"}


@pytest.mark.parametrize(
    ("unit", "disjoint", "per", "together"),
    [
        (ROWS, None, Per.DATASET, False),
        (ROWS, None, Per.BLOCK, False),
        (EVENTS, False, Per.DATASET, True),
        (EVENTS, False, Per.BLOCK, False),
        (EVENTS, True, Per.DATASET, False),
        (PrivacyUnit(dataset="rows", neighbors=Neighbors.REPLACE), None, Per.DATASET, True),
        (PrivacyUnit(dataset="rows", neighbors=Neighbors.REPLACE), None, Per.BLOCK, False),
    ],
)
def test_blocks_compose_in_parallel_only_where_units_are_in_one(unit, disjoint, per, together):
    book = Writer()
    book.dataset(unit, blocks=Blocks(column="ts", every=Every.MONTH), disjoint=disjoint)
    book.accounts("acme")
    book.limit(("acme",), unit.dataset, FilterSpec.of(1), per=per, alert_at=())
    book.reserve("c1", ("acme",), unit, ev.PureDp(0.6), ("2026-01", "2026-02"))
    book.reserve("c2", ("acme",), unit, ev.PureDp(0.4), ("2026-02",))
    assert check(book).ok
    book.reserve("c3", ("acme",), unit, ev.PureDp(0.4), ("2026-01",))
    assert kinds(check(book)) == ({"overspent"} if together else set())
    book.reserve("c4", ("acme",), unit, ev.PureDp(0.1), ("2026-02",))
    assert kinds(check(book)) == {"overspent"}


def test_what_has_no_limit_at_all_is_told_as_a_number():
    book = Writer()
    book.dataset(EVENTS)
    book.accounts("acme")
    book.limit(("acme",), "events", FilterSpec.of(1, 1e-6, side_delta=0), alert_at=())
    book.reserve("c1", ("acme",), EVENTS, ev.ApproxDp(0.1, 1e-7))
    report = check(book)
    assert kinds(report) == {"overspent"}
    assert json.dumps(report.to_dict(), allow_nan=False)


def test_a_charge_counts_at_every_level_and_at_no_sibling():
    book = Writer()
    book.dataset(EVENTS)
    book.accounts("acme", "acme/ads", "acme/ad", "acme/ads/weekly")
    for account, epsilon in ((("acme",), 3), (("acme", "ads"), 2), (("acme", "ad"), 1), (("acme", "ads", "weekly"), 1)):
        book.limit(account, "events", FilterSpec.of(epsilon), alert_at=())
    book.reserve("c1", ("acme", "ads", "weekly"), EVENTS, ev.PureDp(0.5))
    report = check(book)
    assert report.ok
    assert {s.account: round(s.share, 6) for s in report.limits} == {
        "acme": 0.166667,
        "acme/ads": 0.25,
        "acme/ad": 0,
        "acme/ads/weekly": 0.5,
    }


def test_prices_that_differ_in_the_last_digits_are_told_but_no_finding():
    book = small()

    def nudge(by):
        def edit(body):
            digits, power = body["prices"]["L1"][2].split("e")
            body["prices"]["L1"][2] = f"{int(int(digits) * (1 - by))}e{power}"

        return edit

    close = lied(edited("reserve", 0, nudge(1e-14)))
    assert close.ok
    assert "in the last digits" in str(close)
    assert kinds(lied(edited("reserve", 0, nudge(1e-9)))) == {"price"}
    assert book.lines


# ------------------------------------------------------------------------------------------------ anything at all

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5)
    | st.sampled_from(["L1", "c1", "1/2", "acme"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
BODIES = [json.loads(line) for line in small().lines]


def paths_in(value, before=()):
    yield before
    members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in members:
        yield from paths_in(inner, (*before, key))


PLACES = [(n, path) for n, body in enumerate(BODIES) for path in paths_in(body) if path]


@settings(max_examples=400, deadline=None)
@given(st.sampled_from(PLACES), JSON)
def test_anything_anywhere_is_read_without_a_crash(place, value):
    """Sealed anew with the true key: what is found depends on the place, but an answer there always is."""
    n, path = place

    def change(number, body):
        if number == n:
            inner = body
            for key in path[:-1]:
                inner = inner[key]
            inner[path[-1]] = value
        return body

    report = check(rechained([dump(b) for b in BODIES], SEALER, change))
    assert report.ok == (report.findings == ())


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=200) | st.text(max_size=50), max_size=5))
def test_nonsense_is_found(lines):
    assert not verify(lines, public_key=KEY).ok


def test_deep_and_long_lines_are_found():
    for line in ("[" * 100_000, '{"a":' * 100_000, '{"n":' + "9" * 5_000 + "}", "\ud800", '{"count":1e999,"head":0,"root":0}'):
        assert not check([*brief().lines, line]).ok


# ------------------------------------------------------------------------------------------------ small rules


def test_what_a_run_stopped_early_is():
    step = ev.Gaussian(1.0)
    two = ev.Sequence((ev.Repeat(step, 5), ev.Repeat(ev.Laplace(1.0), 5)))
    assert begins(ev.Sequence((ev.Repeat(step, 5),)), two)
    assert begins(ev.Sequence((ev.Repeat(step, 5), ev.Repeat(ev.Laplace(1.0), 2))), two)
    assert not begins(ev.Sequence((ev.Repeat(step, 4), ev.Repeat(ev.Laplace(1.0), 5))), two)
    assert not begins(ev.Repeat(step, 6), ev.Repeat(step, 5))
    assert not begins(ev.Repeat(ev.Gaussian(2.0), 4), ev.Repeat(step, 5))
    assert not begins(ev.Parallel((step,)), ev.Parallel((step, step)))
    assert not begins(ev.Sequence((*two.events, step)), two)


# ------------------------------------------------------------------------------------------------ a second opinion


def test_a_second_opinion_is_no_failure_where_there_is_none(monkeypatch):
    monkeypatch.setitem(sys.modules, "dp_accounting.pld.privacy_loss_distribution", None)
    monkeypatch.setitem(sys.modules, "dp_accounting", None)
    report = check(small(), second_opinion=True)
    assert report.ok
    assert any("dp-accounting is not installed" in note for note in report.notes)


def test_what_is_charged_is_held_against_the_limit_as_one_event_too():
    book = Writer()
    book.dataset(EVENTS)
    book.accounts("acme")
    book.limit(("acme",), "events", FilterSpec.of(1, 1e-6), alert_at=())
    for i in range(10):
        book.reserve(f"c{i}", ("acme",), EVENTS, ev.Gaussian(5.0))
    assert kinds(check(book)) == {"overspent"}
    assert kinds(check(book, second_opinion=True)) == {"overspent", "opinion"}


def test_a_second_opinion_agrees():
    pytest.importorskip("dp_accounting")
    report = check(small(), second_opinion=True)
    assert report.ok
    assert any("by dp_accounting" in note for note in report.notes)
