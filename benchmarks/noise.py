"""Noise: ours beside numpy's unsafe generator and the peers, samples per CPU second and their ratio, from one run on one thread.

    python benchmarks/noise.py [--json FILE] [--quick]

Peers run in environments of their own, which are skipped (and said to be) where they are missing:

    python -m venv .venvs/noise_peers && .venvs/noise_peers/bin/pip install 'opendp==0.16.*' python-dp numpy
    python -m venv .venvs/diffprivlib && .venvs/diffprivlib/bin/pip install diffprivlib 'scikit-learn<1.6'

The leak column is the share of outputs finer than 2**-53 when scale-1 noise is added to 0, then to 1: a share above 0 on one and of 0 on
the other tells the two apart for certain.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
ENVIRONMENTS = {"opendp": "noise_peers", "pydp": "noise_peers", "diffprivlib": "diffprivlib"}
BATCH = 1 << 17


def seconds(call):
    start = time.process_time()
    call()
    return time.process_time() - start


def rates(calls, count, rounds):
    """Samples per CPU second of each call, the best of ``rounds``, taken in turn so that all meet the same weather."""
    best = dict.fromkeys(calls, math.inf)
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            best[name] = min(best[name], seconds(call))
    return {name: count / t if t else math.inf for name, t in best.items()}


def batches(draw, count):
    def call():
        for _ in range(count // BATCH):
            draw(BATCH)

    return call


def repeat(draw, count):
    def call():
        for _ in range(count):
            draw()

    return call


def ours_beside_numpy(count, rounds):
    import numpy as np

    from dither.noise import samplers as s

    g = np.random.Generator(np.random.PCG64())
    np.ones(3 << 20)  # 24 MiB, freed: from here on the allocator keeps freed blocks, for both sides alike
    rows = []

    def beside(what, ours, theirs, wanted, scalar=False):
        n = 20_000 if scalar else count
        wrap = repeat if scalar else batches
        found = rates({"ours": wrap(ours, n), "numpy": wrap(theirs, n)}, n, rounds)
        rows.append(
            {"what": what, "ours": found["ours"], "numpy": found["numpy"], "ratio": found["ours"] / found["numpy"], "wanted": wanted}
        )

    for scale in (1, 10, 100, 1_000, 1 << 40):
        wanted = "2x" if scale <= 100 else ""
        p = -math.expm1(-1 / scale)
        beside(
            f"discrete Laplace, scale {scale:g}",
            lambda n, t=scale: s.discrete_laplace(t, n),
            lambda n, p=p: g.geometric(p, n) - g.geometric(p, n),
            wanted,
        )
        beside(f"discrete Gaussian, std {scale:g}", lambda n, t=scale: s.discrete_gaussian(t, n),
               lambda n, t=scale: np.rint(t * g.standard_normal(n)).astype(np.int64), wanted)  # fmt: skip
    beside("rounded Laplace, scale 10", lambda n: s.rounded_laplace(10, n), lambda n: np.rint(10 * g.laplace(size=n)).astype(np.int64), "")
    beside(
        "rounded Gaussian, std 10", lambda n: s.rounded_gaussian(10, n), lambda n: np.rint(10 * g.standard_normal(n)).astype(np.int64), ""
    )
    beside("Laplace, float", lambda n: s.laplace(1.0, n), lambda n: g.laplace(size=n), "0.6x")
    beside("Gaussian, float", lambda n: s.gaussian(1.0, n), g.standard_normal, "0.4x")
    beside("Bernoulli", lambda n: s.bernoulli(0.3, n), lambda n: g.random(n) < 0.3, "")
    beside("Bernoulli exp(-x)", lambda n: s.bernoulli_exp(1.2, n), lambda n: g.random(n) < math.exp(-1.2), "")
    beside("uniform below 1000", lambda n: s.uniform_below(1_000, n), lambda n: g.integers(1_000, size=n), "")
    for name, ours, theirs in (
        ("discrete Laplace", lambda: s.discrete_laplace(3.0), lambda: g.geometric(0.3) - g.geometric(0.3)),
        ("discrete Gaussian", lambda: s.discrete_gaussian(3.0), lambda: round(3 * g.standard_normal())),
        ("rounded Laplace", lambda: s.rounded_laplace(3.0), lambda: round(3 * g.laplace())),
        ("rounded Gaussian", lambda: s.rounded_gaussian(3.0), lambda: round(3 * g.standard_normal())),
        ("Laplace", lambda: s.laplace(3.0), g.laplace),
        ("Gaussian", lambda: s.gaussian(3.0), g.standard_normal),
        ("Bernoulli", lambda: s.bernoulli(0.3), lambda: g.random() < 0.3),
        ("Bernoulli exp(-x)", lambda: s.bernoulli_exp(1.2), lambda: g.random() < 0.3),
        ("uniform below 1000", lambda: s.uniform_below(1_000), lambda: g.integers(1_000)),
    ):
        beside(f"one call: {name}", ours, theirs, "100 k/s", scalar=True)
    return rows


def table_set_up(rounds):
    """Milliseconds to make a table that is not in the cache."""
    from fractions import Fraction

    from dither.noise import _cells

    def least(make):
        return 1e3 * min(seconds(lambda i=i: make(Fraction(i, 97))) for i in range(rounds))

    rows = []
    for law, scale in (("gaussian", 10), ("gaussian", 500), ("laplace", 10), ("laplace", 200)):
        ms = least(lambda nudge, law=law, scale=scale: _cells.single_integers.__wrapped__(law, scale + nudge))
        rows.append({"what": f"discrete {law}, scale {scale}", "ms": ms})
    for law in ("gaussian", "laplace"):
        ms = least(lambda nudge, law=law: _cells.wide_integers.__wrapped__(law, (1 << 40) + nudge))
        rows.append({"what": f"discrete {law}, scale 2**40", "ms": ms})
        ms = least(lambda _nudge, law=law: _cells.unit_law.__wrapped__(law))
        rows.append({"what": f"continuous {law}, all scales (once a process)", "ms": ms})
    return rows


def finer(draws, bits=53):
    return sum(math.ldexp(x, bits) != math.floor(math.ldexp(x, bits)) for x in draws) / len(draws)


def leak(add_noise, count=3_000):
    return [finer([add_noise(value) for _ in range(count)]) for value in (0.0, 1.0)]


def leaks_of_ours_and_numpy():
    import numpy as np

    from dither.noise import samplers as s

    g = np.random.default_rng()
    step = s.grid_step(1.0)
    adders = {
        "ours: Laplace": lambda v: s.add_noise(v, s.laplace(1.0), step),
        "ours: Gaussian": lambda v: s.add_noise(v, s.gaussian(1.0), step),
        "numpy: Laplace": lambda v: v + g.laplace(),
        "numpy: Gaussian": lambda v: v + g.standard_normal(),
    }
    return [{"what": name, "leak": leak(add)} for name, add in adders.items()]


# ---------------------------------------------------------------- peers, each in its own interpreter


def say(what, call, count, rounds, ours, wanted=""):
    """One row; ``ours`` names our figure that it is compared with."""
    try:
        row = {"what": what, "rate": rates({"it": call}, count, rounds)["it"], "ours": ours, "wanted": wanted}
    except BaseException as error:
        row = {"what": what, "rate": None, "ours": ours, "wanted": wanted, "note": f"{type(error).__name__}: {str(error)[:100]}"}
    print(json.dumps(row), flush=True)


def say_leak(what, add):
    print(json.dumps({"what": what, "leak": leak(add)}), flush=True)


def peer_opendp(rounds):
    import numpy as np
    import opendp.prelude as dp

    dp.enable_features("contrib", "honest-but-curious")
    for kind in (float, int):
        atom = dp.atom_domain(T=kind, nan=False) if kind is float else dp.atom_domain(T=kind)
        for make, metric, name in ((dp.m.make_laplace, dp.l1_distance, "Laplace"), (dp.m.make_gaussian, dp.l2_distance, "Gaussian")):
            label = f"{name}, float" if kind is float else f"discrete {name}"
            ours = label if kind is float else f"{label}, {'std' if name == 'Gaussian' else 'scale'} 100"
            scale = 1.0 if kind is float else 100.0
            one = make(atom, dp.absolute_distance(T=kind), scale=scale)
            many = make(dp.vector_domain(atom), metric(T=kind), scale=scale)
            zeros = np.zeros(20_000, dtype=np.float64 if kind is float else np.int32)
            wanted = "1000x" if label == "Gaussian, float" else ""
            say(f"opendp vector {label}", lambda m=many, z=zeros: m(z), 20_000, rounds, ours, wanted)
            say(
                f"opendp one call: {label}",
                repeat(lambda m=one, k=kind: m(k(0)), 1_000),
                1_000,
                rounds,
                f"one call: {label.removesuffix(', float')}",
            )
            if kind is float:
                say_leak(f"opendp: {name}", one)
    print(json.dumps({"version": f"opendp {dp.__name__ and __import__('importlib.metadata').metadata.version('opendp')}"}))


def peer_pydp(rounds):
    import pydp.algorithms.numerical_mechanisms as m

    laplace, gaussian = m.LaplaceMechanism(1.0, 1.0), m.GaussianMechanism(1.0, 1e-5, 1.0)
    for name, mechanism in (("Laplace", laplace), ("Gaussian", gaussian)):
        say(f"python-dp one call: {name}", repeat(lambda m=mechanism: m.add_noise(0.0), 20_000), 20_000, rounds, f"one call: {name}")
        say_leak(f"python-dp: {name}", mechanism.add_noise)
    say("python-dp one call: discrete Laplace", repeat(lambda: laplace.add_noise(0), 20_000), 20_000, rounds, "one call: discrete Laplace")
    print(json.dumps({"version": f"python-dp {__import__('importlib.metadata').metadata.version('python-dp')}"}))


def peer_diffprivlib(rounds):
    import diffprivlib
    import diffprivlib.mechanisms as m

    rows = {
        "Laplace": (m.Laplace(epsilon=1, delta=0, sensitivity=1), 0.0, "Laplace"),
        "GaussianAnalytic": (m.GaussianAnalytic(epsilon=1, delta=1e-5, sensitivity=1), 0.0, "Gaussian"),
        "Geometric": (m.Geometric(epsilon=1, sensitivity=1), 0, "discrete Laplace"),
        "GaussianDiscrete": (m.GaussianDiscrete(epsilon=1, delta=1e-5, sensitivity=1), 0, "discrete Gaussian"),
        "Snapping": (m.Snapping(epsilon=1, sensitivity=1, lower=-1000, upper=1000), 0.0, "Laplace"),
    }
    for name, (mechanism, zero, like) in rows.items():
        say(f"diffprivlib one call: {name}", repeat(lambda m=mechanism, z=zero: m.randomise(z), 5_000), 5_000, rounds, f"one call: {like}")
    for name, (mechanism, _, _) in rows.items():
        if name in {"Laplace", "GaussianAnalytic", "Snapping"}:
            say_leak(
                f"diffprivlib: {name}",
                m.GaussianAnalytic(epsilon=5, delta=1e-5, sensitivity=1).randomise if name == "GaussianAnalytic" else mechanism.randomise,
            )
    print(json.dumps({"version": f"diffprivlib {diffprivlib.__version__}"}))


def from_peer(peer, rounds):
    python = ROOT / ".venvs" / ENVIRONMENTS[peer] / "bin" / "python"
    if not python.exists():
        return [{"what": peer, "note": f"skipped: no environment .venvs/{ENVIRONMENTS[peer]}"}]
    command = [str(python), str(Path(__file__).resolve()), "--peer", peer, "--rounds", str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return (
        rows
        if done.returncode == 0
        else [*rows, {"what": peer, "note": done.stderr.strip().splitlines()[-1] if done.stderr.strip() else "failed"}]
    )


def millions(rate):
    return "–" if rate is None else f"{rate / 1e6:,.3g} M/s" if rate >= 1e6 else f"{rate / 1e3:,.3g} k/s"


def show(result):
    print(f"\n{'ours beside numpy PCG64 (unsafe)':44s} {'ours':>12s} {'numpy':>12s} {'ratio':>8s}  wanted")
    for row in result["numpy"]:
        print(f"{row['what']:44s} {millions(row['ours']):>12s} {millions(row['numpy']):>12s} {row['ratio']:8.2f}  {row['wanted']}")
    print(f"\n{'peers':44s} {'peer':>12s} {'ours':>12s} {'ratio':>8s}  wanted")
    for row in result["peers"]:
        if "ratio" in row:
            print(f"{row['what']:44s} {millions(row['rate']):>12s} {millions(row['our_rate']):>12s} {row['ratio']:8.1f}  {row['wanted']}")
        elif "leak" not in row:
            print(f"{row.get('what', row.get('version'))}  {row.get('note', '')}")
    print(f"\n{'table set-up':60s} {'ms':>8s}")
    for row in result["set_up"]:
        print(f"{row['what']:60s} {row['ms']:8.2f}")
    print(f"\n{'last bit: share finer than 2**-53':44s} {'on 0':>8s} {'on 1':>8s}")
    for row in result["leaks"]:
        on_0, on_1 = row["leak"]
        verdict = "tells 0 from 1" if (on_0 > 0) != (on_1 > 0) else ""
        print(f"{row['what']:44s} {on_0:8.3f} {on_1:8.3f}  {verdict}")


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the figures there too")
    parser.add_argument("--quick", action="store_true", help="fewer rounds and peers' samples")
    parser.add_argument("--peer", choices=sorted(ENVIRONMENTS), help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    rounds = given.rounds or (3 if given.quick else 9)
    if given.peer:
        {"opendp": peer_opendp, "pydp": peer_pydp, "diffprivlib": peer_diffprivlib}[given.peer](rounds)
        return 0
    result = {"numpy": ours_beside_numpy(1 << (20 if given.quick else 22), rounds), "set_up": table_set_up(rounds)}
    ours = {row["what"]: row["ours"] for row in result["numpy"]}
    result["peers"] = [row for peer in ENVIRONMENTS for row in from_peer(peer, 3)]
    for row in result["peers"]:
        if row.get("rate"):
            row["our_rate"] = ours[row["ours"]]
            row["ratio"] = row["our_rate"] / row["rate"]
    result["leaks"] = leaks_of_ours_and_numpy() + [row for row in result["peers"] if "leak" in row]
    show(result)
    if given.json:
        Path(given.json).write_text(json.dumps(result, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
