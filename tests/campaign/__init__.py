"""The fault campaign: the real server, its workers and many clients, while the machine misbehaves in every way at once.

Rule 53 of docs/rest.md says that no passing fault of the machine costs a job. A campaign goes through rounds; in each, faults
drawn from its seed come and go while clients work, and then everything that was acknowledged is looked for through the
interface, in the database and in the folder. At the end all faults are over, and all jobs must end as they do undisturbed.

    make campaign MINUTES=10 SEED=7            or     cd tests && python -m campaign --minutes 10 --seed 7

Limits, attempts and leases are the defaults.
"""
