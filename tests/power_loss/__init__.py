"""Power loss: what the real program writes is recorded, and played back as a disk may show it after the power was cut.

While clients use a server (record.py), every write, rename, flush and so on is written down in its order, and so is the place
in that order of every answer that a client got. For a moment of that history (history.py), a disk may show many things: content
is sure only up to the last flush of its file, names only up to the last flush of their folder; what came later is there, or not,
or in part. Such states are made as folders (states.py), opened by the real program, and compared with what was acknowledged
(check.py).

    make power-loss CUTS=500          or     cd tests && python -m power_loss --cuts 500 --seed 1
"""
