"""Several workers train a Keras model with model.fit, as TensorFlow's multi-worker tutorial has it."""

import json
import os

import keras_setup
import tensorflow as tf

per_worker_batch_size = 16
tf_config = json.loads(os.environ["TF_CONFIG"])
num_workers = len(tf_config["cluster"]["worker"])

strategy = tf.distribute.MultiWorkerMirroredStrategy()

global_batch_size = per_worker_batch_size * num_workers
multi_worker_dataset = keras_setup.mnist_dataset(global_batch_size)

with strategy.scope():
    # Model building/compiling need to be within `strategy.scope()`.
    multi_worker_model = keras_setup.build_and_compile_cnn_model()

history = multi_worker_model.fit(multi_worker_dataset, epochs=2, steps_per_epoch=10)
losses = history.history["loss"]
assert losses[-1] < losses[0], losses

rank = tf_config["task"]["index"]


@tf.function
def total():
    return strategy.reduce("SUM", strategy.run(lambda: tf.constant(rank)), axis=None)


print(f"rank {rank} of {strategy.num_replicas_in_sync}: sum of ranks {int(total())}", flush=True)
