"""`modelarts.train_params`: what a V2 estimator is given."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call"


class InputData:
    def __init__(self, obs_path=None, name="data_url", **more):
        self.obs_path, self.name = obs_path, name

    def __repr__(self):
        return f"InputData({self.obs_path!r}, {self.name!r})"


class OutputData(InputData):
    def __init__(self, obs_path=None, name="train_url", **more):
        super().__init__(obs_path, name)

    def __repr__(self):
        return f"OutputData({self.obs_path!r}, {self.name!r})"


class TrainingFiles:
    def __init__(self, code_dir=None, boot_file=None, **more):
        self.code_dir, self.boot_file = code_dir, boot_file
