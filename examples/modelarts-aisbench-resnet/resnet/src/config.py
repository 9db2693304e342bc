"""Settings: a file of `name: value` lines, and arguments that win over it."""

import argparse
import ast
import os


def _value(text):
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _read():
    first = argparse.ArgumentParser(add_help=False)
    first.add_argument("--config_path", default="resnet50_cifar10_config.yaml")
    known, rest = first.parse_known_args()
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "config", known.config_path)
    with open(path) as stream:
        lines = [line.split("#")[0].strip() for line in stream]
    settings = {
        name.strip(): _value(value.strip())
        for name, _, value in (line.partition(":") for line in lines if line)
    }
    parser = argparse.ArgumentParser()
    for name, value in settings.items():
        parser.add_argument(f"--{name}", type=_value, default=value)
    return parser.parse_args(rest)


config = _read()
