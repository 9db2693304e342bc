"""The copy engine: files, S3 and OBS, in standard library and the syntax of Python 3.7.

A whole of its own, because it runs in two places: as part of Trainshed (`trainshed.store` gives it profiles and the
embedded store) and laid before a job's own Python, where `moxing` stands on it. It imports nothing of Trainshed; its
own imports are relative, so that it works under either name.
"""
