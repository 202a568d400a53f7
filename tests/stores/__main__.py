"""Runs a command that finds object stores of the tests' own in its environment:

    PYTHONPATH=tests .venv/bin/python -m stores cargo test --release -p libreconstruct --lib storage::object
    PYTHONPATH=tests .venv/bin/python -m stores --only s3 bash

Tests on a store that is not installed are skipped by themselves.
"""

import argparse
import os
import subprocess
import sys

from . import SCHEMES, started


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=SCHEMES, action="append", help="start this store only")
    parser.add_argument("--identity", action="store_true", help="open Azure by an identity's token, not by the account's key")
    parser.add_argument("command", nargs=argparse.REMAINDER, help="what is run")
    options = parser.parse_args()
    if not options.command:
        parser.error("the command is missing")
    with started(tuple(options.only or SCHEMES), options.identity) as stores:
        for scheme, why in stores.missing.items():
            print(f"No store for {scheme}:// — {why} is not installed", file=sys.stderr)
        return subprocess.run(options.command, env=os.environ | stores.environment()).returncode


if __name__ == "__main__":
    sys.exit(main())
