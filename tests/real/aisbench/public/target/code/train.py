"""The boot file: what the adapted model-zoo script does around its training, with steps of arithmetic inside."""

import argparse
import json
import os
import time

import moxing as mox


def parse():
    parser = argparse.ArgumentParser()
    for name in ("data_url", "train_url", "config_path", "enable_modelarts", "run_distribute"):
        parser.add_argument(f"--{name}")
    for name in ("epoch_size", "device_num"):
        parser.add_argument(f"--{name}", type=int)
    return parser.parse_args()


def alone_on_this_server():
    """In single-server mode the rank table is cut down to this server and ranks count from 0."""
    rank = int(os.environ["RANK_ID"])
    os.environ["RANK_ID"] = str(rank % 8)
    os.environ["RANK_SIZE"] = "8"
    ready = "/tmp/tmp.txt"
    if rank % 8:
        while not os.path.exists(ready):
            time.sleep(0.1)
        return
    with open(os.environ["RANK_TABLE_FILE"]) as stream:
        table = json.load(stream)
    server = table["server_list"][rank // 8]
    for device in server["device"]:
        device["rank_id"] = str(int(device["rank_id"]) % 8)
    table.update(server_list=[server], server_count="1")
    with open(os.environ["RANK_TABLE_FILE"], "w") as stream:
        json.dump(table, stream)
    open(ready, "w").close()


def train(options):
    samples, start = 0, time.time()
    for _ in range(options.epoch_size):
        for _ in range(20):
            sum(i * i for i in range(2000))
            samples += 32
    return samples / (time.time() - start)


def main():
    options = parse()
    single = os.getenv("SINGLESERVER_MODE", "") == "True"
    if single:
        alone_on_this_server()
    if not mox.file.exists(os.path.join(options.data_url, "train")):
        raise SystemExit("the data have no folder train")
    rate = train(options)
    server = os.getenv("BATCH_TASK_INDEX", "0")
    target = os.path.join(options.train_url, server) if single else options.train_url
    if single:
        mox.file.make_dirs(target)
    rank = int(os.environ["RANK_ID"])
    mox.file.write(os.path.join(target, f"throughput_{rank}.json"), str(rate))
    if rank == 0:
        accuracy = 0.76 + int(server) / 100
        mox.file.write(os.path.join(options.train_url, f"accuracy_{server}.json"), str(accuracy))
        with mox.file.File(os.path.join(options.train_url, "accuracy.json"), "w") as stream:
            stream.write(str(accuracy))
        size = os.path.join(options.train_url, "ranksize.json")
        if not mox.file.exists(size):
            mox.file.write(size, os.environ["RANK_SIZE"])
    print("trained as rank", rank, "of", os.environ["RANK_SIZE"], "on server", server, flush=True)


if __name__ == "__main__":
    main()
