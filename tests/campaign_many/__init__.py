"""The fault campaign over many machines: several servers and workers, each a machine of its own with a folder and a clock of its
own, share the rows of one PostgreSQL and the files of one storage, and all of it misbehaves at once.

It goes as `tests/campaign` does, with the same clients and the same account of what was acknowledged; the faults are those that
many machines have: machines that die with their folder or stand still for longer than a lease, a database that restarts, freezes
or cannot be reached, connections that are cut or lose an answer, a storage that fails, clocks that differ. In half of the rounds a worker
is also hit while its job is in a stage that is drawn; how many were hit in which is told at the end, and so is what was checked of the
work that they cost (`lookout.py`).

    make campaign-many MINUTES=10 SEED=7       or     cd tests && python -m campaign_many --minutes 10 --seed 7

Attempts are the defaults; leases are short where a machine is to stand still for longer than one.
"""
