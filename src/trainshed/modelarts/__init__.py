"""The words of ModelArts: states, flavors, engines and the signature of requests.

Pure code for whoever speaks them: the ais-bench door, an engine, a server. It knows no HTTP.
"""
