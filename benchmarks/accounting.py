"""Prices and calibrations beside dp-accounting, Opacus and prv-accountant: values and times of one run, side by side.

    python benchmarks/accounting.py [--json FILE] [--quick] [--peers google_pld,google_rdp,opacus_prv,prv]

Each peer runs in a virtual environment of its own (.venvs/acct_peers holds dp-accounting; .venvs/opacus_peers and .venvs/prv_peers the
others, if they are there), as one long-lived process that answers case by case, in turn with ours: both sides see the same
machine at the same time. Times are CPU seconds of one thread, best of three. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
Q = 256 / 60_000
# One row per case; the figures are noise multiplier (or target epsilon), probability, count, delta.
CASES = {
    "A sigma 1.1 q 256/60k T 4700": ("sgd", 1.1, Q, 4_700, 1e-5),
    "B sigma 1 q 256/60k T 600": ("sgd", 1.0, Q, 600, 1e-5),
    "C sigma 3 q 256/60k T 600": ("sgd", 3.0, Q, 600, 1e-5),
    "D sigma 1 q .01 T 1000": ("sgd", 1.0, 0.01, 1_000, 1e-5),
    "E sigma 2 q .01 T 1000": ("sgd", 2.0, 0.01, 1_000, 1e-5),
    "F sigma .6 q .001 T 1e5": ("sgd", 0.6, 0.001, 100_000, 1e-6),
    "G sigma 4 q .1 T 1e4": ("sgd", 4.0, 0.1, 10_000, 1e-6),
    "hard sigma 50 q 1e-5 T 1e6": ("sgd", 50.0, 1e-5, 1_000_000, 1e-6),
    "hard sigma .3 q .01 T 1000": ("sgd", 0.3, 0.01, 1_000, 1e-5),
    "hard sigma 1 q .2 T 5000": ("sgd", 1.0, 0.2, 5_000, 1e-5),
    "hard delta 1e-15": ("sgd", 4.0, 1 / 3_000, 10_000, 1e-15),
    "hard delta 1.13e-18": ("sgd", 4.0, 1 / 3_000, 10_000, 1.13e-18),
    "hard one step": ("sgd", 10.0, 1e-3, 1, 1e-8),
    "Laplace .1 x 100": ("laplace", 10.0, 1.0, 100, 1e-6),
    "Laplace .01 x 10000": ("laplace", 100.0, 1.0, 10_000, 1e-6),
}
TARGETS = (0.1, 0.25, 0.5, 1, 2, 3, 4, 6, 8, 10)
for _target in TARGETS:
    CASES[f"calibrate eps {_target} q .01 T 2000"] = ("calibrate", _target, 0.01, 2_000, 1e-5)
VENVS = {"google_pld": "acct_peers", "google_rdp": "acct_peers", "opacus_prv": "opacus_peers", "prv": "prv_peers"}
LIMIT = 90.0


# ------------------------------------------------------------------------------------------------ ours


def ours(kind, noise, probability, count, delta):
    """What a user calls: ``dither.epsilon`` and ``dither.calibrate``."""
    import dither
    from dither import events as ev

    def training(sigma):
        return ev.Repeat(ev.Subsample(ev.Gaussian(sigma), ev.Poisson(probability)), count)

    if kind == "calibrate":
        return dither.calibrate(training, epsilon=noise, delta=delta), math.nan
    bound = dither.epsilon(training(noise) if kind == "sgd" else ev.Repeat(ev.Laplace(noise), count), delta=delta)
    return bound.upper, bound.lower


# ------------------------------------------------------------------------------------------------ peers


def google(name):
    import dp_accounting as d
    from dp_accounting import pld, rdp

    def account():
        return pld.PLDAccountant() if name == "google_pld" else rdp.RdpAccountant()

    def run(kind, noise, probability, count, delta):
        if kind == "laplace":
            return account().compose(d.SelfComposedDpEvent(d.LaplaceDpEvent(noise), count)).get_epsilon(delta)

        def event(sigma):
            return d.SelfComposedDpEvent(d.PoissonSampledDpEvent(probability, d.GaussianDpEvent(sigma)), count)

        if kind == "calibrate":
            return d.calibrate_dp_mechanism(account, event, noise, delta)
        return account().compose(event(noise)).get_epsilon(delta)

    return run


def opacus(name):
    from opacus.accountants import create_accountant
    from opacus.accountants.utils import get_noise_multiplier

    mechanism = name.split("_")[1]

    def run(kind, noise, probability, count, delta):
        if kind == "laplace":
            return math.nan
        if kind == "calibrate":
            return get_noise_multiplier(
                target_epsilon=noise, target_delta=delta, sample_rate=probability, steps=count, accountant=mechanism
            )
        accountant = create_accountant(mechanism)
        accountant.history = [(noise, probability, count)]
        return accountant.get_epsilon(delta=delta)

    return run


def prv(_name):
    from prv_accountant import LaplaceMechanism, PoissonSubsampledGaussianMechanism, PRVAccountant
    from prv_accountant.dpsgd import find_noise_multiplier

    def run(kind, noise, probability, count, delta):
        if kind == "calibrate":
            return float(find_noise_multiplier(probability, count, noise, delta, eps_error=0.01))
        made = (
            LaplaceMechanism(mu=1 / noise)
            if kind == "laplace"
            else PoissonSubsampledGaussianMechanism(noise_multiplier=noise, sampling_probability=probability)
        )
        accountant = PRVAccountant(prvs=[made], max_self_compositions=[count], eps_error=0.01, delta_error=delta / 1000)
        return float(accountant.compute_epsilon(delta=delta, num_self_compositions=[count])[2])

    return run


def timed(run, case):
    best, value, error = math.inf, math.nan, ""
    for _ in range(3):
        start = time.process_time()
        try:
            value = run(*case)
        except Exception as found:
            error = f"{type(found).__name__}: {str(found)[:80]}"
        best = min(best, time.process_time() - start)
        if best > 2 or error:
            break
    return {"value": value, "seconds": best, "error": error}


def worker(name):
    """Answer cases named on stdin, one JSON line each."""
    import warnings

    warnings.simplefilter("ignore")
    out = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # peers print; the protocol must stay clean
    run = {"google_pld": google, "google_rdp": google, "opacus_prv": opacus, "prv": prv}[name](name)
    for line in sys.stdin:
        answer = timed(run, CASES[line.strip()])
        answer["value"] = float(answer["value"])
        print(json.dumps(answer), file=out, flush=True)


class Peer:
    def __init__(self, name):
        python = ROOT / ".venvs" / VENVS[name] / "bin" / "python"
        self.name, self.process = name, None
        if python.exists():
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": ""}
            command = [str(python), str(Path(__file__).resolve()), "--worker", name]
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
            )

    def ask(self, case):
        if self.process is None:
            return None
        try:
            self.process.stdin.write(case + "\n")
            self.process.stdin.flush()
            line = self.process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self.process = None
            return None
        return json.loads(line)

    def close(self):
        if self.process is not None:
            self.process.stdin.close()
            self.process.wait(timeout=LIMIT)


def measured(peers):
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    ours(*CASES["E sigma 2 q .01 T 1000"])  # imports
    rows = []
    for name, case in CASES.items():
        mine = timed(ours, case)
        upper, lower = mine["value"]
        row = {"case": name, "upper": upper, "lower": lower, "seconds": mine["seconds"], "peers": {}}
        for peer in peers:
            answer = peer.ask(name)
            if answer is not None:
                row["peers"][peer.name] = answer
        rows.append(row)
    return rows


def totals(rows, peers):
    groups = {
        "A-G": [r for r in rows if r["case"][:2] in {f"{c} " for c in "ABCDEFG"}],
        "ten calibrations": [r for r in rows if r["case"].startswith("calibrate")],
    }
    found = {}
    for group, members in groups.items():
        mine = sum(r["seconds"] for r in members)
        found[group] = {"ours": mine}
        for peer in peers:
            answers = [r["peers"].get(peer.name) for r in members]
            if all(answers):
                theirs = sum(a["seconds"] for a in answers)
                found[group][peer.name] = theirs
                found[group][f"ours / {peer.name}"] = mine / theirs
    return found


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    parser.add_argument("--quick", action="store_true", help="beside dp-accounting's PLD only")
    parser.add_argument("--peers", default=",".join(VENVS))
    parser.add_argument("--worker")
    options = parser.parse_args()
    if options.worker:
        worker(options.worker)
        return
    asked = ["google_pld"] if options.quick else options.peers.split(",")
    peers = [peer for peer in (Peer(name) for name in asked if name in VENVS) if peer.process is not None]
    rows = measured(peers)
    summary = totals(rows, peers)
    for peer in peers:
        peer.close()
    if options.json:
        Path(options.json).write_text(json.dumps({"rows": rows, "totals": summary}, indent=1) + "\n")
    print(
        f"{'case':38} {'ours (upper)':>14} {'gap':>8} {'s':>7}"
        + "".join(f" | {p.name:>11} {'off':>8} {'s':>6} {'ratio':>6}" for p in peers)
    )
    for row in rows:
        gap = row["upper"] / row["lower"] - 1 if row["lower"] > 0 else math.nan
        text = f"{row['case']:38} {row['upper']:14.8g} {gap:8.1e} {row['seconds']:7.4f}"
        for peer in peers:
            answer = row["peers"].get(peer.name)
            if answer is None or answer["error"]:
                text += f" | {'fails' if answer else '-':>11} {'':>22}"
            else:
                off = answer["value"] / row["upper"] - 1
                text += f" | {answer['value']:11.6g} {off:+8.2%} {answer['seconds']:6.2f} {row['seconds'] / answer['seconds']:6.3f}"
        print(text)
    for group, numbers in summary.items():
        print(group + ": " + ", ".join(f"{k} {v:.3f}" for k, v in numbers.items()))


if __name__ == "__main__":
    main()
