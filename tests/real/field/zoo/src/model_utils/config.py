"""Configuration as the model zoo has it: a YAML file of values, help and choices, under command line arguments."""

import argparse
import ast
import os

import yaml


class Config:
    """Values as attributes, nested ones too."""

    def __init__(self, values):
        for name, value in values.items():
            setattr(self, name, Config(value) if isinstance(value, dict) else value)


def _read(path):
    with open(path) as stream:
        documents = list(yaml.load_all(stream, Loader=yaml.FullLoader))
    return (documents + [{}, {}])[:3]


def get_config():
    parser = argparse.ArgumentParser(description="default name", add_help=False)
    here = os.path.dirname(os.path.abspath(__file__))
    default = os.path.join(here, "../../lenet_config.yaml")
    parser.add_argument("--config_path", type=str, default=default)
    path, _ = parser.parse_known_args()
    values, helper, choices = _read(os.path.join(here, "../..", path.config_path))
    parser = argparse.ArgumentParser(description="[REPLACE]", parents=[parser])
    for name, value in values.items():
        kind = ast.literal_eval if isinstance(value, bool) else type(value)
        parser.add_argument(
            f"--{name}", type=kind, default=value, help=helper.get(name), choices=choices.get(name)
        )
    return Config(vars(parser.parse_args()))


config = get_config()
