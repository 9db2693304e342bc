"""LeNet-5, and a residual network of three stages."""

import mindspore.nn as nn
from mindspore.common.initializer import Normal
from mindspore.ops import operations as P


class LeNet5(nn.Cell):
    def __init__(self, num_class=10, num_channel=1):
        super(LeNet5, self).__init__()
        self.conv1 = nn.Conv2d(num_channel, 6, 5, pad_mode="valid")
        self.conv2 = nn.Conv2d(6, 16, 5, pad_mode="valid")
        self.fc1 = nn.Dense(16 * 5 * 5, 120, weight_init=Normal(0.02))
        self.fc2 = nn.Dense(120, num_class, weight_init=Normal(0.02))
        self.relu, self.flatten = nn.ReLU(), nn.Flatten()
        self.pool = nn.MaxPool2d(kernel_size=2, stride=2)

    def construct(self, x):
        x = self.pool(self.relu(self.conv1(x)))
        x = self.pool(self.relu(self.conv2(x)))
        return self.fc2(self.relu(self.fc1(self.flatten(x))))


class Block(nn.Cell):
    def __init__(self, channels_in, channels, stride):
        super(Block, self).__init__()
        self.conv1 = nn.Conv2d(channels_in, channels, 3, stride=stride, pad_mode="same")
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv2 = nn.Conv2d(channels, channels, 3, pad_mode="same")
        self.bn2 = nn.BatchNorm2d(channels)
        self.down = nn.Conv2d(channels_in, channels, 1, stride=stride, pad_mode="same")
        self.relu, self.add = nn.ReLU(), P.Add()

    def construct(self, x):
        y = self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x)))))
        return self.relu(self.add(y, self.down(x)))


class ResNet(nn.Cell):
    def __init__(self, num_classes=10):
        super(ResNet, self).__init__()
        self.stages = nn.SequentialCell([Block(3, 8, 2), Block(8, 16, 2), Block(16, 32, 2)])
        self.mean = P.ReduceMean(keep_dims=False)
        self.end_point = nn.Dense(32, num_classes)

    def construct(self, x):
        return self.end_point(self.mean(self.stages(x), (2, 3)))
