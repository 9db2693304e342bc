"""`python -m trainshed.bench.aisbench`: the same as the command ais-bench-stubs."""

from trainshed.bench.aisbench.stubs import main

if __name__ == "__main__":
    main()
