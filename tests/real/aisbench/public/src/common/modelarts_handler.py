"""Jobs of the V1 interface, through the platform's SDK and its object-store client."""

import logging
import os
import time

from modelarts.estimator import JOB_STATE, Estimator
from modelarts.session import Session
from obs import ObsClient, model  # noqa: F401

logging.basicConfig(level=logging.DEBUG, format="[%(levelname)s] %(message)s")
logger = logging.getLogger(__name__)
FAILED = {3, 5, 6, 9, 11, 12, 13, 14, 16, 17, 21, 22}
STOPPABLE = {"JOBSTAT_INIT", "JOBSTAT_WAITING", "JOBSTAT_RUNNING"}
POLL_SECONDS = 1


def bucket_and_key(url):
    return url.split("://", 1)[1].split("/", 1)


class modelarts_handler:
    def __init__(self):
        self.output_url = None

    def create_session(self, access_config):
        if all(access_config.get(name) for name in ("iam_endpoint", "obs_endpoint", "modelarts_endpoint")):
            Session.set_endpoint(
                iam_endpoint=access_config.iam_endpoint,
                obs_endpoint=access_config.obs_endpoint,
                modelarts_endpoint=access_config.modelarts_endpoint,
                region_name=access_config.region_name,
            )
        self.session = Session(
            access_key=access_config.access_key,
            secret_key=access_config.secret_access_key,
            project_id=access_config.project_id,
            region_name=access_config.region_name,
        )

    def create_obs_handler(self, access_config):
        self.obsClient = ObsClient(
            access_key_id=access_config.access_key,
            secret_access_key=access_config.secret_access_key,
            server=access_config.server,
        )

    def jobs(self, session_config):
        found = Estimator.get_job_list(
            modelarts_session=self.session,
            per_page=10,
            page=1,
            order="asc",
            search_content=session_config.job_name,
        )
        return found["jobs"] if found and found.get("job_total_count", 0) else []

    def stop_new_versions(self, session_config):
        for job in self.jobs(session_config)[:1]:
            state = JOB_STATE[job["status"]]
            one = Estimator(
                modelarts_session=self.session, job_id=job["job_id"], version_id=job["version_id"]
            )
            answer = one.stop_job_version() if state in STOPPABLE else "not needed"
            print(
                f"jobname:{session_config.job_name} jobid:{job['job_id']} preversionid:{job['version_id']} "
                f"jobstatus:{state} stop status:{answer}"
            )

    def get_obs_url_content(self, url):
        bucket, key = bucket_and_key(url)
        answer = self.obsClient.getObject(bucket, key, loadStreamInMemory=True)
        if answer.status >= 300:
            raise RuntimeError(f"obs get object ret:{answer.status} url:{url}")
        return answer.body.buffer.decode("utf-8")

    def run_job(self, config, local_code):
        print(
            f"get valid train_instance_types:{Estimator.get_train_instance_types(modelarts_session=self.session)}"
        )
        earlier = self.jobs(config)
        version = 1
        if earlier:
            known = Estimator(
                modelarts_session=self.session,
                job_id=earlier[0]["job_id"],
                version_id=earlier[0]["version_id"],
            )
            version = int(known.get_job_info()["version_name"][1:]) + 1
        self.output_url = os.path.join(f"s3:/{config.out_base_url}", f"V{version}", "")
        bucket, key = bucket_and_key(self.output_url)
        if self.obsClient.putContent(bucket, key, content=None).status >= 300:
            raise RuntimeError("cannot make the output folder")
        parts = config.code_dir.strip("/").split("/")
        self.obsClient.putFile(parts[0], "/".join(parts[1:]), local_code)
        description = f"{config.job_description_prefix}_jobname_{config.job_name}"
        estimator = Estimator(
            modelarts_session=self.session,
            framework_type=config.framework_type,
            framework_version=config.framework_version,
            code_dir=config.code_dir,
            boot_file=config.boot_file,
            log_url=self.output_url[4:],
            hyperparameters=config.hyperparameters,
            output_path=self.output_url[4:],
            pool_id=config.get("pool_id") or None,
            train_instance_type=config.get("train_instance_type") or None,
            train_instance_count=config.train_instance_count,
            nas_type=config.get("nas_type"),
            nas_share_addr=config.get("nas_share_addr"),
            nas_mount_path=config.get("nas_mount_path"),
            job_description=description,
            user_command=None,
        )
        if earlier:
            job = estimator.create_job_version(
                job_id=earlier[0]["job_id"],
                pre_version_id=earlier[0]["version_id"],
                inputs=config.inputs,
                wait=False,
                job_desc=description,
            )
        else:
            job = estimator.fit(inputs=config.inputs, wait=False, job_name=config.job_name)
        info = job.get_job_info()
        if not info["is_success"]:
            raise RuntimeError(info["error_msg"])
        print(
            "create sucess job_id:{job_id} resource_id:{resource_id} version_name:{version_name}".format(
                **info
            )
        )
        log = f"obs:/{self.output_url[4:]}{info['resource_id']}-job-{config.job_name}"
        while info["status"] != 10:
            if info["status"] in FAILED:
                raise RuntimeError(f"task failed, status {JOB_STATE[info['status']]}")
            time.sleep(POLL_SECONDS)
            info = job.get_job_info()
        print("task succeeded, total time %d(s)" % (info["duration"] / 1000))
        for server in range(config.train_instance_count):
            if self.session.obs.is_obs_path_exists(f"{log}-{server}.log"):
                print(f"server {server} left its log on obs")
