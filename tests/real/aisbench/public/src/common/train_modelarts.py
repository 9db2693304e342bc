"""Starts the training on ModelArts, waits for it, and reports the numbers that it left."""

import argparse
import logging
import os
import sys
from statistics import mean

sys.path.append(os.path.join(os.path.abspath(os.path.dirname(__file__)), ".."))

import ais_utils
from config.modelarts_config import access_config, session_config, session_config_v2
from modelarts_handler import logger, modelarts_handler
from modelarts_handler_v2 import modelarts_handler as modelarts_handler_v2

CARDS_PER_SERVER = 8


def number(handler, *parts):
    url = os.path.join(handler.output_url, *parts)
    value = float(handler.get_obs_url_content(url))
    print(f"url:{url} read:{value}")
    return value


def report_all(handler):
    ranks = int(number(handler, "ranksize.json"))
    total = sum(number(handler, f"throughput_{rank}.json") for rank in range(ranks))
    ais_utils.set_result("training", "throughput_ratio", total)
    ais_utils.set_result("training", "accuracy", number(handler, "accuracy.json"))
    print(f"report result total_throughput : {total}")


def report_servers(handler, servers):
    rates, accuracies = [], []
    for server in range(servers):
        cards = range(CARDS_PER_SERVER)
        rates.append(sum(number(handler, str(server), f"throughput_{card}.json") for card in cards))
        accuracies.append(number(handler, f"accuracy_{server}.json"))
    print(f"report >> throughput_list:{rates} average:{mean(rates)}")
    print(f"report >> accuracy_list:{accuracies} average:{mean(accuracies)}")
    ais_utils.set_result("training", "throughput_ratio", mean(rates))
    ais_utils.set_result("training", "accuracy", mean(accuracies))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_code_path")
    parser.add_argument("--single_server_mode", action="store_true")
    parser.add_argument("--action", default="run", choices=["run", "stop"])
    parser.add_argument("--modelarts_version", default="V1", choices=["V1", "V2"])
    parser.add_argument("--job_id", default="None")
    args = parser.parse_args()
    logger.setLevel(logging.DEBUG)
    second = args.modelarts_version == "V2"
    session = session_config_v2 if second else session_config
    handler = modelarts_handler_v2() if second else modelarts_handler()
    handler.create_session(access_config)
    if args.action == "stop":
        if second:
            handler.stop_job(args.job_id)
        else:
            handler.stop_new_versions(session)
        return
    handler.create_obs_handler(access_config)
    handler.run_job(session, args.local_code_path)
    if args.single_server_mode:
        report_servers(handler, session.train_instance_count)
    else:
        report_all(handler)


if __name__ == "__main__":
    main()
