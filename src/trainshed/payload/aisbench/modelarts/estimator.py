"""`modelarts.estimator`: training jobs of the V1 interface, with versions and numbered states."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, import-not-found"
import time

from modelarts.trainshed_call import ModelArtsError, call

JOB_STATE = [
    "JOBSTAT_" + name
    for name in [
        "UNKNOWN",
        "INIT",
        "IMAGE_CREATING",
        "IMAGE_FAILED",
        "SUBMIT_TRYING",
        "SUBMIT_FAILED",
        "DELETE_FAILED",
        "WAITING",
        "RUNNING",
        "KILLING",
        "COMPLETED",
        "FAILED",
        "KILLED",
        "CANCELED",
        "LOST",
        "SCALING",
        "SUBMIT_MODEL_FAILED",
        "DEPLOY_SERVICE_FAILED",
        "CHECK_INIT",
        "CHECK_RUNNING",
        "CHECK_RUNNING_COMPLETED",
        "CHECK_FAILED",
        "MOUNT_FAILED",
    ]
]
_FIELDS = [
    "framework_type",
    "framework_version",
    "code_dir",
    "boot_file",
    "log_url",
    "hyperparameters",
    "output_path",
    "pool_id",
    "train_instance_type",
    "train_instance_count",
    "nas_type",
    "nas_share_addr",
    "nas_mount_path",
    "job_description",
    "user_command",
]
_POLL_SECONDS = 10
_ENDED = ("COMPLETED", "FAILED", "KILLED", "CANCELED", "LOST")


class Estimator:
    """A job that is to be made, or with job_id and version_id one that was."""

    def __init__(self, modelarts_session=None, job_id=None, version_id=None, **fields):
        self.session, self.job_id, self.version_id = modelarts_session, job_id, version_id
        self._fields = {name: fields.get(name) for name in _FIELDS}

    @staticmethod
    def get_train_instance_types(modelarts_session=None):
        return call("flavors")

    @staticmethod
    def get_job_list(modelarts_session=None, per_page=10, page=1, order="asc", search_content=""):
        """Jobs of exactly this name: a similar name never stands for another's job."""
        return call("list", api="V1", name=search_content)

    def fit(self, inputs=None, wait=True, job_name=None, **more):
        return self._started(call("submit", api="V1", job_name=job_name, inputs=inputs, **self._fields), wait)

    def create_job_version(
        self, job_id=None, pre_version_id=None, inputs=None, wait=True, job_desc="", **more
    ):
        """The next version of a job that has one."""
        fields = dict(self._fields, job_description=job_desc)
        return self._started(call("submit", api="V1", job_id=job_id, inputs=inputs, **fields), wait)

    def get_job_info(self):
        return call("info", api="V1", id=self.version_id)

    def stop_job_version(self):
        return call("stop", api="V1", id=self.version_id)

    def _started(self, info, wait):
        made = Estimator(self.session, info["job_id"], info["version_id"])
        while wait:
            info = made.get_job_info()
            state = JOB_STATE[info["status"]][len("JOBSTAT_") :]
            if state in _ENDED:
                if state != "COMPLETED":
                    raise ModelArtsError("the job ended as " + JOB_STATE[info["status"]])
                break
            time.sleep(_POLL_SECONDS)
        return made
