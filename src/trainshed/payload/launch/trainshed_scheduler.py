"""MindSpore's scheduler and nothing else: joins the cluster that MS_* describe, and stays while it lasts.

Run by the job's own Python, with MS_ROLE=MS_SCHED: `python -m trainshed_scheduler`. No line of the
user's is run here: scripts expect to be run by ranks alone.
"""


def main() -> None:
    try:
        from mindspore.communication import init  # type: ignore[import-not-found,unused-ignore]
    except ModuleNotFoundError as error:
        # A script that uses no MindSpore has nothing to schedule; one that does says so itself.
        print(f"no scheduler is started: {error}")
        return
    init()


if __name__ == "__main__":
    main()
