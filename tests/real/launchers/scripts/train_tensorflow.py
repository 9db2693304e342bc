"""Fits a line on all workers together with MultiWorkerMirroredStrategy, and checks their collectives."""

import os
import signal
import sys
import time

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import tensorflow as tf

strategy = tf.distribute.MultiWorkerMirroredStrategy()
rank = strategy.cluster_resolver.task_id or 0
size = strategy.num_replicas_in_sync
with strategy.scope():
    slope = tf.Variable(0.0)
    offset = tf.Variable(0.0)


@tf.function
def added(value):
    return strategy.reduce("SUM", strategy.run(tf.identity, args=(value,)), axis=None)


@tf.function
def step(x):
    def gradients():
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean((slope * x + offset - (3 * x + rank)) ** 2)
        return tape.gradient(loss, [slope, offset])

    sums = [strategy.reduce("SUM", item, axis=None) for item in strategy.run(gradients)]

    def update(by_slope, by_offset):
        slope.assign_sub(0.1 * by_slope / size)
        offset.assign_sub(0.1 * by_offset / size)

    strategy.run(update, args=tuple(sums))


total = float(added(tf.constant(float(rank))))
assert total == size * (size - 1) / 2, total
if "--die" in sys.argv and rank == size - 1:
    print(f"DIES {time.time()}", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

tf.random.set_seed(rank)
for _ in range(60):
    step(tf.random.uniform([32, 1]))
mean = float(added(slope.read_value())) / size
assert abs(mean - slope.numpy()) < 1e-5, "the workers' weights differ"
at_half = slope.numpy() * 0.5 + offset.numpy()
assert abs(at_half - (1.5 + (size - 1) / 2)) < 0.4, at_half
print(f"TRAINED rank {rank} of {size} on {os.uname().nodename} sum {total:g}", flush=True)
