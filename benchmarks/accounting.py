"""Accounting: ours beside the peers, ε and CPU seconds for the same cases, in turn, in one process and on one thread.

    python benchmarks/accounting.py [--json FILE] [--quick]

Ours gives both sides of the bound; the peers give what they give. Peers run in environments of their own, together with ours; those that
are missing are skipped (and said to be):

    python -m venv .venvs/acct_peers && .venvs/acct_peers/bin/pip install dp-accounting==0.6.0 numpy scipy
    python -m venv .venvs/prv_peers && .venvs/prv_peers/bin/pip install prv-accountant==0.2.0 numpy scipy
    python -m venv .venvs/opacus_peers && .venvs/opacus_peers/bin/pip install torch==2.13.0 opacus==1.6.0
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = {
    "dp-accounting PLD": "acct_peers",
    "dp-accounting RDP": "acct_peers",
    "prv-accountant": "prv_peers",
    "Opacus PRV": "opacus_peers",
    "Opacus RDP": "opacus_peers",
}
Q = 256 / 60_000
TABLE = {  # noise multiplier, sampling probability, steps, delta
    "A": (1.1, Q, 4_700, 1e-5),
    "B": (1.0, Q, 600, 1e-5),
    "C": (3.0, Q, 600, 1e-5),
    "D": (1.0, 0.01, 1_000, 1e-5),
    "E": (2.0, 0.01, 1_000, 1e-5),
    "F": (0.6, 0.001, 100_000, 1e-6),
    "G": (4.0, 0.1, 10_000, 1e-6),
}
HARD = {
    "tiny q": (50.0, 1e-5, 1_000_000, 1e-6),
    "low noise": (0.3, 0.01, 1_000, 1e-5),
    "big ε": (1.0, 0.2, 5_000, 1e-5),
    "δ 1e-15": (4.0, 1 / 3_000, 10_000, 1e-15),
    "δ 1e-18": (4.0, 1 / 3_000, 10_000, 1.13e-18),
    "one step": (10.0, 1e-3, 1, 1e-8),
}
TARGETS = (0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0, 10.0)
LIMIT_S = 240


def timed(call, rounds):
    """The answer, and the best CPU seconds of so many rounds; long calls run once."""
    best, answer = math.inf, None
    for _ in range(rounds):
        start = time.process_time()
        try:
            answer = call()
        except Exception as error:
            return f"{type(error).__name__}", time.process_time() - start
        best = min(best, time.process_time() - start)
        if best > 2:
            break
    return answer, best


def ours():
    sys.path.insert(0, str(ROOT / "src"))
    import dither
    from dither import events as ev
    from dither.accounting import _price
    from dither.accounting import loss as module

    def event(noise, q, steps):
        return ev.Repeat(ev.Subsample(ev.Gaussian(noise), ev.Poisson(q)), steps)

    def forget():
        """Nothing may be remembered from one round to the next."""
        sys.modules["dither.accounting.loss"]._loss.cache_clear()
        _price.price.cache_clear()

    def price(noise, q, steps, delta):
        forget()
        bound = dither.epsilon(event(noise, q, steps), delta)
        return bound.upper, bound.lower

    def calibrated(target, q, steps, delta):
        forget()
        return dither.calibrate(lambda noise: event(noise, q, steps), epsilon=target, delta=delta)

    assert module is not None
    return price, calibrated


def peer(name):
    warnings.simplefilter("ignore")
    if name.startswith("dp-accounting"):
        import dp_accounting as d
        from dp_accounting import pld, rdp

        make = pld.PLDAccountant if name.endswith("PLD") else rdp.RdpAccountant

        def event(noise, q, steps):
            return d.SelfComposedDpEvent(d.PoissonSampledDpEvent(q, d.GaussianDpEvent(noise)), steps)

        return (
            lambda noise, q, steps, delta: make().compose(event(noise, q, steps)).get_epsilon(delta),
            lambda target, q, steps, delta: d.calibrate_dp_mechanism(make, lambda s: event(s, q, steps), target, delta),
        )
    if name == "prv-accountant":
        from prv_accountant import PoissonSubsampledGaussianMechanism, PRVAccountant
        from prv_accountant.dpsgd import find_noise_multiplier

        def price(noise, q, steps, delta):
            mechanism = PoissonSubsampledGaussianMechanism(noise_multiplier=noise, sampling_probability=q)
            accountant = PRVAccountant(prvs=[mechanism], max_self_compositions=[steps], eps_error=0.01, delta_error=delta / 1000)
            return float(accountant.compute_epsilon(delta=delta, num_self_compositions=[steps])[2])

        return price, lambda target, q, steps, delta: float(find_noise_multiplier(q, steps, target, delta, eps_error=0.01))
    from opacus.accountants import create_accountant
    from opacus.accountants.utils import get_noise_multiplier

    kind = name.split()[1].lower()

    def opacus_price(noise, q, steps, delta):
        accountant = create_accountant(kind)
        accountant.history = [(noise, q, steps)]
        return accountant.get_epsilon(delta=delta)

    return opacus_price, lambda target, q, steps, delta: get_noise_multiplier(
        target_epsilon=target, target_delta=delta, sample_rate=q, steps=steps, accountant=kind
    )


def compare_with(name, *, quick):
    """Rows of one peer, ours measured beside it."""
    (our_price, our_noise), (their_price, their_noise) = ours(), peer(name)
    rounds = 1 if quick else 3
    our_price(*TABLE["C"]), our_noise(1.0, 0.01, 2_000, 1e-5)  # imports and first-time set-up are nobody's price
    timed(lambda: their_price(*TABLE["C"]), 1)
    rows = []
    for title, cases in (("table", TABLE), ("hard", HARD)):
        for case, given in cases.items():
            (upper, lower), own = timed(lambda given=given: our_price(*given), rounds)[0], 0.0
            own = timed(lambda given=given: our_price(*given), rounds)[1]
            value, other = timed(lambda given=given: their_price(*given), rounds)
            rows.append(
                {"peer": name, "kind": title, "case": case, "upper": upper, "lower": lower, "own_s": own, "value": value, "peer_s": other}
            )
    spent = time.process_time()
    for target in () if quick else TARGETS:
        if time.process_time() - spent > LIMIT_S:
            rows.append({"peer": name, "kind": "calibrate", "case": f"ε {target:g}", "note": "not reached in time"})
            continue
        noise, own = timed(lambda target=target: our_noise(target, 0.01, 2_000, 1e-5), 1)
        value, other = timed(lambda target=target: their_noise(target, 0.01, 2_000, 1e-5), 1)
        rows.append(
            {"peer": name, "kind": "calibrate", "case": f"ε {target:g}", "upper": noise, "own_s": own, "value": value, "peer_s": other}
        )
    return rows


def run_peer(name, *, quick):
    python = ROOT / ".venvs" / ENVIRONMENTS[name] / "bin" / "python"
    if not python.exists():
        return [{"peer": name, "note": f"skipped: no environment .venvs/{ENVIRONMENTS[name]}"}]
    command = [python, __file__, "--peer", name, *(["--quick"] if quick else [])]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        return [{"peer": name, "note": f"failed: {done.stderr.strip().splitlines()[-1] if done.stderr.strip() else done.returncode}"}]
    return json.loads(done.stdout.strip().splitlines()[-1])


def shown(value):
    return value if isinstance(value, str) else f"{value:.6g}"


def report(rows):
    """A table a peer, and the ratio of CPU seconds for each kind of case."""
    for name in dict.fromkeys(r["peer"] for r in rows):
        own = [r for r in rows if r["peer"] == name]
        print(f"\n{name}")
        if "note" in own[0] and "kind" not in own[0]:
            print(f"  {own[0]['note']}")
            continue
        print(f"  {'case':<12} {'ours, lower':>12} {'ours, upper':>12} {'peer':>14} {'peer/ours':>10} {'s ours':>8} {'s peer':>8}")
        for r in own:
            if "own_s" not in r:
                print(f"  {r['case']:<12} {r['note']}")
                continue
            off = "" if isinstance(r["value"], str) or not r["upper"] else f"{100 * (r['value'] / r['upper'] - 1):+.2f} %"
            low = shown(r["lower"]) if "lower" in r else ""
            print(
                f"  {r['case']:<12} {low:>12} {shown(r['upper']):>12} {shown(r['value']):>14} {off:>10} {r['own_s']:>8.4f} {r['peer_s']:>8.4f}"
            )
        for kind in ("table", "hard", "calibrate"):
            both = [(r["own_s"], r["peer_s"]) for r in own if r.get("kind") == kind and "own_s" in r]
            if both:
                ours_s, theirs_s = (sum(s) for s in zip(*both, strict=True))
                print(f"  {kind}: ours take {ours_s / theirs_s:.3f} × the peer's CPU time ({len(both)} cases)")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    parser.add_argument("--quick", action="store_true", help="one round, no calibrations")
    parser.add_argument("--peer", choices=sorted(ENVIRONMENTS), help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.peer:
        print(json.dumps(compare_with(given.peer, quick=given.quick)))
        return
    rows = [row for name in ENVIRONMENTS for row in run_peer(name, quick=given.quick)]
    report(rows)
    if given.json:
        Path(given.json).write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
