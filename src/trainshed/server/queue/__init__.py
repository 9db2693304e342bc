"""The queue of one machine: `decide` is a pure function over data (rules R0-R6, see docs/queue.md).

It knows no clock, no database and no run directory: its caller says what is, and carries out what it decides.
"""
