"""The Tester: the organiser's server that receives signed results, checks them again and ranks them.

Standard library and SQLite only. `server` and `inbox` are the organiser's
side, `client` and `spool` the participant's; the protocol between them is in
docs/tester.md.
"""
