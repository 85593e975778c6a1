"""Every benchmark, one after the other: ours beside the peers, as ratios from one run.

    python benchmarks/run.py [--quick]

Figures go to out/bench-*.json as well. Peers live in environments of their own (.venvs/…, see each script); missing ones are made first
with --install, else they are skipped and said to be.
"""

import argparse
import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PEERS = {
    "noise_peers": ["opendp==0.16.*", "python-dp", "numpy"],
    "diffprivlib": ["diffprivlib", "scikit-learn<1.6"],
    "acct_peers": ["dp-accounting==0.6.0", "numpy", "scipy"],
    "prv_peers": ["prv-accountant==0.2.0", "numpy", "scipy"],
    "opacus_peers": ["torch==2.13.0", "opacus==1.6.0"],
}


def install():
    """Make the environments that are missing."""
    for name, packages in PEERS.items():
        folder = ROOT / ".venvs" / name
        if (folder / "bin/python").exists():
            continue
        print(f"Installing {', '.join(packages)} into {folder.relative_to(ROOT)} …", flush=True)
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([folder / "bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages], check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--install", action="store_true", help="install the peers that are missing first")
    given = parser.parse_args()
    if given.install:
        install()
    (ROOT / "out").mkdir(exist_ok=True)
    failed = []
    for name in ("noise", "accounting", "ledger", "query"):
        print(f"\n===== {name} =====", flush=True)
        command = [
            sys.executable,
            ROOT / f"benchmarks/{name}.py",
            "--json",
            ROOT / f"out/bench-{name}.json",
            *(["--quick"] if given.quick else []),
        ]
        done = subprocess.run(command, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
        failed += [name] if done.returncode else []
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
