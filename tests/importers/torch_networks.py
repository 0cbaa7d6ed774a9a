"""Networks of arcface_torch's architectures in PyTorch, with drawn weights.

    python -m tests.importers.torch_networks FOLDER NAME...

writes NAME.onnx, NAME_unfolded.onnx, NAME.pt and NAME.json, with images and embeddings.
It needs a process of its own, because PyTorch's exporter and TensorFlow have versions
of one library.
"""

import inspect
import json
import math
import pathlib
import sys


def main(folder, *names):
    import torch

    makers = {
        "small": lambda: iresnet(torch, (2, 1), (4, 6), 8, 16),
        "iresnet18": lambda: iresnet(torch, [2] * 4, (64, 128, 256, 512), 512, 112),
        "mbf": lambda: mbf(torch, 128),
        "vit_t": lambda: vit(torch, 256, 12, 512),
    }
    for name in names:
        network, side = makers[name](), 16 if name == "small" else 112
        path = pathlib.Path(folder, name)
        export(torch, network, f"{path}.onnx", side)
        export(torch, network, f"{path}_unfolded.onnx", side, folded=False)
        torch.save(network.state_dict(), f"{path}.pt")
        images = torch.randint(0, 256, (2, side, side, 3))
        with torch.no_grad():
            found = network((images.permute(0, 3, 1, 2) - 127.5) / 127.5)
        content = {"images": images.tolist(), "embeddings": found.tolist()}
        path.with_suffix(".json").write_text(json.dumps(content))


def iresnet(torch, depths, widths, size, side):
    nn, width = torch.nn, widths[0]
    layers = [*_conv(nn, 3, width, 3), nn.PReLU(width)]
    for depth, outputs in zip(depths, widths, strict=True):
        for block in range(depth):
            stride, shortcut = 1 if block else 2, nn.Identity()
            if stride > 1 or width != outputs:
                shortcut = nn.Sequential(*_conv(nn, width, outputs, 1, stride))
            inner = [*_conv(nn, width, outputs, 3), nn.PReLU(outputs)]
            branch = [nn.BatchNorm2d(width), *inner]
            branch += _conv(nn, outputs, outputs, 3, stride)
            layers.append(_sum(nn, branch, shortcut))
            width = outputs
    pixels = width * (side // 2 ** len(depths)) ** 2
    layers += [nn.BatchNorm2d(width), nn.Flatten(), nn.Linear(pixels, size)]
    network = _drawn(torch, nn.Sequential(*layers, nn.BatchNorm1d(size)))
    nn.init.ones_(network[-1].weight)
    return network


def mbf(torch, size):
    nn = torch.nn

    def block(width, inner, outputs, stride=1):
        layers = [*_conv(nn, width, inner, 1), nn.PReLU(inner)]
        layers += [*_conv(nn, inner, inner, 3, stride, inner), nn.PReLU(inner)]
        layers += _conv(nn, inner, outputs, 1)
        repeated = stride == 1
        return _sum(nn, layers, nn.Identity()) if repeated else nn.Sequential(*layers)

    layers = [*_conv(nn, 3, 128, 3, 2), nn.PReLU(128)]
    layers += [*_conv(nn, 128, 128, 3, 1, 64), nn.PReLU(128), block(128, 128, 128, 2)]
    layers += [*(block(128, 128, 128) for _ in range(4)), block(128, 256, 256, 2)]
    layers += [*(block(256, 256, 256) for _ in range(6)), block(256, 512, 256, 2)]
    layers += [*(block(256, 256, 256) for _ in range(2)), *_conv(nn, 256, 512, 1)]
    layers += [nn.PReLU(512), nn.Conv2d(512, 512, 7, groups=512, bias=False)]
    layers += [nn.BatchNorm2d(512), nn.Flatten(), nn.Linear(512, size, bias=False)]
    return _drawn(torch, nn.Sequential(*layers, nn.BatchNorm1d(size)))


def vit(torch, width, depth, size):
    nn = torch.nn

    class Places(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch = nn.Conv2d(3, width, 9, 9)
            self.position = nn.Parameter(torch.zeros(1, 144, width))

        def forward(self, x):
            return self.patch(x).flatten(2).transpose(1, 2) + self.position

    class Attention(nn.Module):
        def forward(self, x):
            batch, places, _ = x.shape
            parts = x.reshape(batch, places, 3, 8, width // 8).permute(2, 0, 3, 1, 4)
            query, key, value = parts[0], parts[1], parts[2]
            scores = (query @ key.transpose(-2, -1)) * (width // 8) ** -0.5
            mixed = scores.softmax(dim=-1) @ value
            return mixed.transpose(1, 2).reshape(batch, places, width)

    layers = [Places()]
    for _ in range(depth):
        qkv = nn.Linear(width, 3 * width, bias=False)
        attention = [nn.LayerNorm(width), qkv, Attention(), nn.Linear(width, width)]
        dense = [nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.ReLU6()]
        dense.append(nn.Linear(4 * width, width))
        layers += [_sum(nn, branch, nn.Identity()) for branch in (attention, dense)]
    layers += [nn.LayerNorm(width), nn.Flatten()]
    for inputs, outputs in ((144 * width, width), (width, size)):
        layers.append(nn.Linear(inputs, outputs, bias=False))
        layers.append(nn.BatchNorm1d(outputs, eps=2e-5))
    return _drawn(torch, nn.Sequential(*layers))


def export(torch, network, path, side, folded=True):
    """Writes an ONNX file as arcface_torch's `torch2onnx.py` does."""
    modes = torch.onnx.TrainingMode
    options = {"training": modes.EVAL if folded else modes.PRESERVE}
    if "dynamo" in inspect.signature(torch.onnx.export).parameters:
        options["dynamo"] = False
    images = torch.zeros(1, 3, side, side)
    names = {"input_names": ["data"], "opset_version": 11}
    torch.onnx.export(network.eval(), images, path, **names, **options)


def _conv(nn, inputs, outputs, size, stride=1, groups=1):
    options = {"padding": size // 2, "groups": groups, "bias": False}
    conv = nn.Conv2d(inputs, outputs, size, stride, **options)
    return [conv, nn.BatchNorm2d(outputs)]


def _sum(nn, branch, shortcut):
    class Sum(nn.Module):
        def __init__(self):
            super().__init__()
            self.branch, self.shortcut = nn.Sequential(*branch), shortcut

        def forward(self, x):
            return self.branch(x) + self.shortcut(x)

    return Sum()


def _drawn(torch, network):
    torch.manual_seed(0)
    for name, weight in network.state_dict().items():
        if weight.ndim > 1:
            weight.normal_(0, 1 / math.sqrt(weight[0].numel()))
        elif name.endswith(("weight", "running_var")):
            weight.uniform_(0.5, 1.5)
        elif weight.ndim:
            weight.uniform_(-0.3, 0.3)
    return network.eval()


if __name__ == "__main__":
    main(*sys.argv[1:])
