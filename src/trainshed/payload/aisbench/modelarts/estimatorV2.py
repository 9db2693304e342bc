"""`modelarts.estimatorV2`: training jobs of the V2 interface, by id and phase."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, import-not-found"
import time

from modelarts.trainshed_call import ModelArtsError, call

JOB_STATE = ["Pending", "Creating", "Running", "Terminating", "Completed", "Failed", "Terminated", "Abnormal"]
_FIELDS = [
    "framework_type",
    "framework_version",
    "log_url",
    "parameters",
    "pool_id",
    "train_instance_type",
    "train_instance_count",
    "job_description",
    "user_command",
]
_POLL_SECONDS = 10


class EstimatorV2:
    """A job that is to be made, or with job_id one that was."""

    def __init__(self, session=None, training_files=None, outputs=(), job_id=None, **fields):
        self.session, self.job_id = session, job_id
        self._fields = {name: fields.get(name) for name in _FIELDS}
        self._files, self._outputs = training_files, list(outputs or ())

    @staticmethod
    def get_train_instance_types(session=None):
        return call("flavors")

    @staticmethod
    def control_job_by_id(session=None, job_id=None):
        """Stop a job; the answer has its phase."""
        call("stop", api="V2", id=job_id)
        return call("info", api="V2", id=job_id)

    def fit(self, inputs=(), wait=True, job_name=None, **more):
        if len(inputs) != 1 or len(self._outputs) != 1:
            raise ModelArtsError("a job of ais-bench has one input and one output")
        info = call(
            "submit",
            api="V2",
            job_name=job_name,
            inputs=inputs[0].obs_path,
            input_name=inputs[0].name,
            output_path=self._outputs[0].obs_path,
            output_name=self._outputs[0].name,
            code_dir=self._files.code_dir,
            boot_file=self._files.boot_file,
            **self._fields,
        )
        made = EstimatorV2(self.session, job_id=info["metadata"]["id"])
        while wait:
            phase = made.get_job_info()["status"]["phase"]
            if phase in ("Completed", "Failed", "Terminated", "Abnormal"):
                if phase != "Completed":
                    raise ModelArtsError("the job ended as " + phase)
                break
            time.sleep(_POLL_SECONDS)
        return made

    def get_job_info(self):
        return call("info", api="V2", id=self.job_id)

    def control_job(self):
        return self.control_job_by_id(self.session, self.job_id)


Estimator = EstimatorV2
