"""Jobs of the V2 interface; files go through moxing where there is one."""

import os
import time

from modelarts.estimatorV2 import JOB_STATE, Estimator  # noqa: F401
from modelarts.session import Session
from modelarts.train_params import InputData, OutputData, TrainingFiles
from obs import ObsClient

try:
    import moxing as mox
except Exception:
    mox = None

POLL_SECONDS = 1


class modelarts_handler:
    def __init__(self):
        self.output_url = None

    def create_session(self, access_config):
        self.session = Session(
            access_key=access_config.access_key,
            secret_key=access_config.secret_access_key,
            project_id=access_config.project_id,
            region_name=access_config.region_name,
        )

    def create_obs_handler(self, access_config):
        if mox is None:
            self.obsClient = ObsClient(access_key_id=access_config.access_key, server=access_config.server)

    def stop_job(self, job_id):
        answer = Estimator.control_job_by_id(session=self.session, job_id=job_id)
        print(f"job stop status: {answer['status']['phase']}")

    def get_obs_url_content(self, url):
        with mox.file.File("obs:/" + url, "r") as stream:
            return stream.read()

    def run_job(self, config, local_code):
        name = config.job_name + time.strftime("%Y_%m_%d-%H_%M_%S")
        print(f"get valid train_instance_types:{Estimator.get_train_instance_types(self.session)}")
        self.output_url = os.path.join(config.out_base_url, name, "")
        mox.file.make_dirs("obs:/" + self.output_url)
        mox.file.copy_parallel(local_code, "obs:/" + config.code_dir)
        estimator = Estimator(
            session=self.session,
            framework_type=config.framework_type,
            framework_version=config.framework_version,
            training_files=TrainingFiles(
                code_dir="obs:/" + config.code_dir, boot_file="obs:/" + config.boot_file
            ),
            log_url="obs:/" + self.output_url,
            parameters=config.parameters,
            outputs=[OutputData(obs_path="obs:/" + self.output_url, name="train_url")],
            pool_id=config.get("pool_id") or None,
            train_instance_type=config.get("train_instance_type") or None,
            train_instance_count=config.train_instance_count,
            job_description=config.job_description_prefix,
            user_command=None,
        )
        inputs = [InputData(obs_path="obs:/" + config.inputs, name="data_url")]
        job = estimator.fit(inputs=inputs, wait=False, job_name=name)
        info = job.get_job_info()
        if "error_msg" in info:
            raise RuntimeError(info["error_msg"])
        print("create job sucess. job_id:{id}  job name:{name}".format(**info["metadata"]))
        while info["status"]["phase"] != "Completed":
            if info["status"]["phase"] in ("Failed", "Abnormal", "Terminated"):
                raise RuntimeError(f"task failed, phase {info['status']['phase']}")
            time.sleep(POLL_SECONDS)
            info = job.get_job_info()
        print("task succeeded, total time %d(s)" % (info["status"]["duration"] / 1000))
