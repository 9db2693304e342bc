from easydict import EasyDict as ed

access_config = ed(
    {
        "access_key": "",
        "secret_access_key": "",
        "server": "",
        "region_name": "",
        "project_id": "",
        "iam_endpoint": "",
        "obs_endpoint": "",
        "modelarts_endpoint": "",
    }
)

session_config = ed(
    {
        "hyperparameters": [
            {"label": "config_path", "value": "resnet50_imagenet2012_Boost_config.yaml"},
            {"label": "enable_modelarts", "value": "True"},
            {"label": "run_distribute", "value": "True"},
            {"label": "epoch_size", "value": "5"},
            {"label": "device_num", "value": "8"},
        ],
        "inputs": "/aisbench/dataset/imagenet_small/",
        "code_dir": "/aisbench/code/resnet/",
        "boot_file": "/aisbench/code/resnet/train.py",
        "job_name": "aisbench-debug",
        "framework_type": "Ascend-Powered-Engine",
        "framework_version": "MindSpore-1.3.0-c78-python3.7-euleros2.8-aarch64",
        "pool_id": None,
        "train_instance_type": "modelarts.kat1.8xlarge",
        "train_instance_count": 1,
        "out_base_url": "/aisbench/result",
        "job_description_prefix": "debug desc",
    }
)

session_config_v2 = ed(
    {
        "parameters": [
            {"name": "config_path", "value": "resnet50_imagenet2012_Boost_config.yaml"},
            {"name": "enable_modelarts", "value": "True"},
            {"name": "run_distribute", "value": "True"},
            {"name": "epoch_size", "value": "5"},
            {"name": "device_num", "value": "8"},
        ],
        "inputs": "/aisbench/dataset/imagenet_small/",
        "code_dir": "/aisbench/code/resnet/",
        "boot_file": "/aisbench/code/resnet/train.py",
        "job_name": "aisbench-debug",
        "framework_type": "Ascend-Powered-Engine",
        "framework_version": "MindSpore-1.3.0-c78-python3.7-euleros2.8-aarch64",
        "pool_id": None,
        "train_instance_type": "modelarts.kat1.8xlarge",
        "train_instance_count": 1,
        "out_base_url": "/aisbench/result/",
        "job_description_prefix": "debug desc",
    }
)
