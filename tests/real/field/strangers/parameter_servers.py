"""Training with parameter servers, as TensorFlow's tutorial has it: chief, workers and servers run the same script."""

import os

import tensorflow as tf

cluster_resolver = tf.distribute.cluster_resolver.TFConfigClusterResolver()

# Set the environment variable to allow reporting worker and ps failure to the coordinator.
os.environ["GRPC_FAIL_FAST"] = "use_caller"

if cluster_resolver.task_type in ("worker", "ps"):
    # Start a TensorFlow server and wait.
    server = tf.distribute.Server(
        cluster_resolver.cluster_spec(),
        job_name=cluster_resolver.task_type,
        task_index=cluster_resolver.task_id,
        protocol=cluster_resolver.rpc_layer or "grpc",
        start=True,
    )
    print(f"{cluster_resolver.task_type} {cluster_resolver.task_id} serves", flush=True)
    server.join()
else:
    # Run the coordinator.
    strategy = tf.distribute.ParameterServerStrategy(cluster_resolver)
    coordinator = tf.distribute.coordinator.ClusterCoordinator(strategy)
    with strategy.scope():
        weight = tf.Variable(tf.zeros([4, 1]))

    @tf.function
    def per_worker_dataset_fn():
        return strategy.distribute_datasets_from_function(dataset_fn)

    def dataset_fn(_):
        x = tf.random.stateless_uniform([256, 4], seed=(1, 2))
        data = tf.data.Dataset.from_tensor_slices((x, tf.reduce_sum(x, axis=1, keepdims=True)))
        return data.shuffle(256).repeat().batch(16)

    @tf.function
    def train_step(iterator):
        def replica_fn(x, y):
            with tf.GradientTape() as tape:
                loss = tf.reduce_mean((tf.matmul(x, weight) - y) ** 2)
            weight.assign_sub(0.1 * tape.gradient(loss, weight))
            return loss

        x, y = next(iterator)
        losses = strategy.run(replica_fn, args=(x, y))
        return strategy.reduce(tf.distribute.ReduceOp.MEAN, losses, axis=None)

    per_worker_iterator = iter(coordinator.create_per_worker_dataset(per_worker_dataset_fn))
    losses = []
    for epoch in range(2):
        results = [coordinator.schedule(train_step, args=(per_worker_iterator,)) for _ in range(20)]
        coordinator.join()
        losses.append(sum(float(result.fetch()) for result in results) / len(results))
        print(f"Finished epoch {epoch}, loss is {losses[-1]:.4f}.", flush=True)
    assert losses[-1] < losses[0], losses
    spec = cluster_resolver.cluster_spec().as_dict()
    print(f"trained by {len(spec['worker'])} workers and {len(spec['ps'])} parameter servers", flush=True)
