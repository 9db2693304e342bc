"""ResNet-50 in MindSpore: bottleneck blocks in four stages of 3, 4, 6 and 3.

`width` is the number of channels of the first stage, 64 in the paper; a
narrower network keeps every layer and trains in less time.
"""

from mindspore import nn


class Bottleneck(nn.Cell):
    """1x1, 3x3, 1x1 convolutions beside a shortcut."""

    expansion = 4

    def __init__(self, channels_in, channels, stride=1):
        super().__init__()
        channels_out = channels * self.expansion
        self.body = nn.SequentialCell(
            convolution(channels_in, channels, 1),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            convolution(channels, channels, 3, stride),
            nn.BatchNorm2d(channels),
            nn.ReLU(),
            convolution(channels, channels_out, 1),
            # Starts at zero, so that a block begins as its shortcut: the network learns from the first step.
            nn.BatchNorm2d(channels_out, gamma_init="zeros"),
        )
        self.shortcut = nn.SequentialCell()
        self.changes_shape = stride != 1 or channels_in != channels_out
        if self.changes_shape:
            self.shortcut = nn.SequentialCell(
                convolution(channels_in, channels_out, 1, stride), nn.BatchNorm2d(channels_out)
            )
        self.relu = nn.ReLU()

    def construct(self, image):
        straight = self.shortcut(image) if self.changes_shape else image
        return self.relu(self.body(image) + straight)


class ResNet(nn.Cell):
    def __init__(self, blocks, width, classes):
        super().__init__()
        stem = [
            convolution(3, width, 7, 2),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            nn.MaxPool2d(3, 2, pad_mode="same"),
        ]
        layers, channels_in = [], width
        for stage, count in enumerate(blocks):
            channels = width * 2**stage
            for block in range(count):
                stride = 2 if block == 0 and stage > 0 else 1
                layers.append(Bottleneck(channels_in, channels, stride))
                channels_in = channels * Bottleneck.expansion
        self.features = nn.SequentialCell(*stem, *layers)
        self.head = nn.Dense(channels_in, classes)

    def construct(self, image):
        return self.head(self.features(image).mean((2, 3)))


def convolution(channels_in, channels_out, size, stride=1):
    return nn.Conv2d(channels_in, channels_out, size, stride, pad_mode="same", weight_init="he_normal")


def resnet50(classes=10, width=64):
    return ResNet([3, 4, 6, 3], width, classes)
