"""Contract `plain`: no platform. Code, inputs and outputs are below /job."""

from __future__ import annotations

from trainshed.contracts.base import Contract
from trainshed.plan.view import Layout, View


class Plain(Contract):
    def layout(self, view: View) -> Layout:
        return Layout(
            home="/home/trainshed",
            code="/job/code",
            work="/job/code",
            inputs={c.name: f"/job/inputs/{c.name}" for c in view.job.inputs},
            outputs={c.name: f"/job/outputs/{c.name}" for c in view.job.outputs},
            private=("/job",),
        )


CONTRACT = Plain()
