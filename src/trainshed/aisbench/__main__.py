"""`python -m trainshed.aisbench`: the same as the command ais-bench-stubs."""

from trainshed.aisbench.stubs import main

if __name__ == "__main__":
    main()
