"""The guide's distributed training with today's Paddle: fleet in collective mode."""

import paddle
import paddle.distributed as dist
from paddle.distributed import fleet
from train import network, train

paddle.set_device("cpu")
paddle.seed(1)
# The environment first: fleet then finds its ranks already together.
dist.init_parallel_env()
fleet.init(is_collective=True, strategy=fleet.DistributedStrategy())
model = network()
optimizer = fleet.distributed_optimizer(paddle.optimizer.SGD(0.1, parameters=model.parameters()))
train(fleet.distributed_model(model), optimizer, dist.get_rank(), dist.get_world_size())
if dist.get_rank() == 0:
    paddle.save(model.state_dict(), "./model.pdparams")
