"""Cuts the power at many moments of a recording."""

import random
import shutil
import tempfile
from bisect import bisect_left
from collections import Counter
from pathlib import Path

from .check import Lost, check_state
from .record import Recording, history
from .states import WAYS, State, make

# States are made in memory where there is a file system for that: they are read once.
MEMORY = Path("/dev/shm")
# One state in so many is worked on to the end of its jobs.
GOES_ON = 8


def moments_of(recording: Recording, past, choice: random.Random) -> int:
    """A moment at which the power is cut: any, or where the most depends on it: just after a client was told something, or
    around a flush."""
    kind = choice.randrange(3)
    if kind == 0:
        return choice.choice(past.moments)
    if kind == 1:
        told = [fact.told for story in recording.stories.values() for fact in story.facts if fact.told is not None]
        told += [fact.told for fact in recording.uploads.values() if fact.told is not None]
        return choice.choice(told)
    at = bisect_left(past.moments, choice.choice(past.flush_moments)) + choice.choice([-1, 0, 1])
    return past.moments[max(0, min(at, len(past.moments) - 1))]


def cut_power(recording: Recording, cuts: int, seed: int, say=print, first: int = 0) -> Counter:
    """Tries so many states; what they were. Raises `Lost` with all that is needed to make the state again."""
    past = history(recording)
    counts: Counter[str] = Counter()
    for number in range(first, first + cuts):
        choice = random.Random(f"{seed} {number}")
        state = State(moments_of(recording, past, choice), WAYS[number % len(WAYS)], f"{seed} {number} content")
        goes_on = number % GOES_ON == GOES_ON - 1
        place = Path(tempfile.mkdtemp(prefix="power-", dir=MEMORY if MEMORY.is_dir() else None))
        try:
            make(past, state, place / "disk")
            check_state(recording, state, place / "disk", place / "server", goes_on)
        except AssertionError as lost:
            raise Lost(f"seed {seed}, cut {number} at {state.cut} of {past.moments[-1]}, {state.way}: {lost} (the state is in {place})") from lost
        shutil.rmtree(place)
        counts[state.way] += 1
        counts["continued to the end of all jobs"] += goes_on
        if (number + 1) % 20 == 0:
            say(f"{number + 1} cuts in a record of {past.operations} operations: {dict(counts)}", flush=True)
    return counts


__all__ = ["Lost", "cut_power"]
