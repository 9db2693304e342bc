"""`modelarts.session`: a session needs no login here; `session.obs` is the store of the configuration."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, import-not-found"
from moxing import file


class ModelArtsSession:
    """What estimators are made with."""

    def __init__(self, access_key=None, secret_key=None, project_id=None, region_name=None, **more):
        self.project_id, self.region_name = project_id, region_name
        self.obs = OBS()

    @staticmethod
    def set_endpoint(iam_endpoint=None, obs_endpoint=None, modelarts_endpoint=None, region_name=None):
        """Trainshed has read these from the configuration itself."""


class OBS:
    """Files of the store by obs:// URLs."""

    def is_obs_path_exists(self, obs_path):
        return file.exists(obs_path)

    def download_file(self, src_obs_file, dst_local_dir):
        file.copy(src_obs_file, dst_local_dir)

    def download_dir(self, src_obs_dir, dst_local_dir):
        file.copy_parallel(src_obs_dir, dst_local_dir)

    def upload_file(self, src_local_file, dst_obs_dir):
        file.copy(src_local_file, dst_obs_dir)

    def upload_dir(self, src_local_dir, dst_obs_dir):
        file.copy_parallel(src_local_dir, dst_obs_dir)

    def create_directory(self, bucket_name, directory_name):
        file.make_dirs("obs://" + bucket_name + "/" + directory_name.strip("/") + "/")


Session = ModelArtsSession
