"""Campaigns one after the other, each with the next seed.

    cd tests && python -m campaign [--minutes 10] [--all-rounds 1000] [--seed 1] [--rounds 30] [--first 1] [--only]
"""

import argparse
import signal
import sys
import time
from collections import Counter

from .clients import Fault
from .play import Campaign, play


def main(kind: type[Campaign] = Campaign) -> int:
    parser = argparse.ArgumentParser(description="Plays fault campaigns until the time is over. A fault that is found ends its campaign and is told with its seed.")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--all-rounds", type=int, default=10**9, help="end when so many rounds were played in all")
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the first campaign; each further one has the next")
    parser.add_argument("--rounds", type=int, default=30, help="rounds of a campaign")
    parser.add_argument("--first", type=int, default=1, help="number of the first round, to repeat one")
    parser.add_argument("--only", action="store_true", help="play this seed alone")
    parser.add_argument("--tell", action="store_true", help="tell each round")
    arguments = parser.parse_args()
    kind.tells = arguments.tell
    # Ended from outside, it still ends its processes and gives its disk back.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    began = time.monotonic()
    end = began + arguments.minutes * 60
    seed, kills, rounds, faults = arguments.seed, 0, 0, []
    not_played: Counter[str] = Counter()
    while True:
        try:
            done = play(seed, min(arguments.rounds, arguments.all_rounds - rounds), until=end, first=arguments.first, kind=kind)
            kills, rounds = kills + done["kills"], rounds + done["rounds"]
            not_played.update(done.get("not played", ()))
            minutes = (time.monotonic() - began) / 60
            print(f"seed {seed}: {done}; {rounds} rounds and {kills} kills in all, {kills / minutes:.0f} kills a minute", flush=True)
        except Fault as fault:
            faults.append(seed)
            print(f"FAULT: {fault}", flush=True)
        if arguments.only or time.monotonic() >= end or rounds >= arguments.all_rounds:
            break
        seed += 1
    print(f"{len(faults)} of {seed - arguments.seed + 1} campaigns found a fault{': seeds ' + str(faults) if faults else ''}")
    for what, count in not_played.items():
        print(f"NOT PLAYED in {count} campaigns: {what}")
    return 1 if faults else 0


if __name__ == "__main__":
    raise SystemExit(main())
