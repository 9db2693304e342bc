"""Chaos: processes of real runs are killed and frozen, and what Trainshed promises of their end is checked.

    python -m chaos --seed 7 --trials 500 --on sandbox,plain,podman,slurm

A trial submits a small job of two nodes, strikes one or two of its processes
(SIGKILL or SIGSTOP) at a random or provoked moment and looks at the end. All of
a trial follows from the seed, its number and the list of engines.
"""
