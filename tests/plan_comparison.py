"""Whether a run was launched with the plan that a dry run printed."""

from __future__ import annotations

from typing import Any

DECIDED_LATER = {
    "hosts", "address", "coordinator", "notes", "MASTER_ADDR", "MASTER_PORT", "PET_MASTER_ADDR",
    "PET_MASTER_PORT", "PET_LOCAL_ADDR", "TRAINSHED_NODE_ADDRESS", "TRAINSHED_LEAVE",
}  # fmt: skip
"""Keys of a plan whose values are known once ports and addresses are leased."""
BY_ALLOCATION = DECIDED_LATER | {
    "name", "HOSTNAME", "OMP_NUM_THREADS", "PATH", "SLURMD_NODENAME", "SLURM_NODELIST", "SLURM_STEP_NODELIST",
}  # fmt: skip
"""And those that a cluster decides when it gives out nodes."""


def assert_same_plan(
    printed: Any, launched: Any, names: tuple[str, str], later: set[str], at: str = "plan"
) -> None:
    """The same keys and values but for `later`; `names` are the run's in the dry run and in earnest."""
    if isinstance(printed, dict):
        more = {key for key in launched if key not in printed and not key.startswith("SLURM_")}
        assert not more and set(printed) <= set(launched), (at, more, set(printed) - set(launched))
        for key in set(printed) - later:
            assert_same_plan(printed[key], launched[key], names, later, f"{at}.{key}")
    elif isinstance(printed, list):
        assert len(printed) == len(launched), at
        for index, pair in enumerate(zip(printed, launched, strict=True)):
            assert_same_plan(*pair, names, later, f"{at}[{index}]")
    else:
        wanted = printed.replace(*names) if isinstance(printed, str) else printed
        assert wanted == launched, at
