"""Campaigns over many machines, one after the other, each with the next seed; the options are those of `python -m campaign`."""

from campaign.__main__ import main

from .play import ManyMachines

if __name__ == "__main__":
    raise SystemExit(main(ManyMachines))
