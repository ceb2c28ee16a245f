"""Makes digits.onnx, train.npz and test.npz beside it, and checks what PyTorch itself reaches on them.

Needed only to change the demo: the three files are committed. Needs torch, onnx, onnxscript, numpy and scikit-learn.
    python make.py            writes the files
    python make.py --check    trains the exported network in PyTorch with five seeds and prints each test accuracy
"""
import pathlib
import sys

import numpy as np
import torch
import torch.nn.functional as F
from sklearn.datasets import load_digits
from torch import nn

HERE = pathlib.Path(__file__).resolve().parent
TRAIN_ROWS = 1437  # of 1,797; the remaining 360 are the test set


class Digits(nn.Module):
    """Two convolutions with BatchNorm and max pooling, then one linear layer: 6,186 parameters."""

    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(1, 16, 3, padding=1), nn.BatchNorm2d(16)
        self.conv2, self.bn2 = nn.Conv2d(16, 32, 3, padding=1), nn.BatchNorm2d(32)
        self.fc = nn.Linear(32 * 2 * 2, 10)

    def forward(self, image):
        x = F.max_pool2d(F.relu(self.bn1(self.conv1(image))), 2)
        x = F.max_pool2d(F.relu(self.bn2(self.conv2(x))), 2)
        return self.fc(torch.flatten(x, 1))


def fresh_network(seed):
    torch.manual_seed(seed)
    return Digits()


def split_digits():
    """({image, label} for training, the same for testing); pixels 0..16 become 0..1."""
    digits = load_digits()
    image = (digits.images / 16).astype(np.float32)[:, None]
    label = digits.target.astype(np.int64)
    order = np.random.RandomState(0).permutation(len(image))
    return tuple({"image": image[rows], "label": label[rows]} for rows in (order[:TRAIN_ROWS], order[TRAIN_ROWS:]))


def strip_exporter_chatter(model):
    """Drops stack traces and the like: they bloat the file and name paths of the machine that exported it."""
    for node in model.graph.node:
        node.ClearField("metadata_props")
        node.ClearField("doc_string")
    for values in (model.graph.value_info, model.graph.input, model.graph.output, model.graph.initializer):
        for value in values:
            value.ClearField("metadata_props")
    model.ClearField("metadata_props")
    model.graph.ClearField("metadata_props")


def export(path):
    import onnx

    # The exporter's own optimizer would fold each BatchNorm into the convolution before it.
    torch.onnx.export(fresh_network(0).eval(), (torch.zeros(2, 1, 8, 8),), str(path), dynamo=True, external_data=False, optimize=False,
                      input_names=["image"], output_names=["logits"], dynamic_shapes=({0: torch.export.Dim("batch")},), verbose=False)
    model = onnx.load(str(path))
    strip_exporter_chatter(model)
    onnx.checker.check_model(model)
    onnx.save(model, str(path))


def accuracy_in_pytorch(train, test, seed, epochs=20, batch=64):
    """What `gcomp train` does, in PyTorch: AdamW at 1e-3, shuffled every epoch, the last short batch dropped."""
    network = fresh_network(seed)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    image, label = torch.from_numpy(train["image"]), torch.from_numpy(train["label"])
    for _ in range(epochs):
        order = torch.randperm(len(image))
        for rows in order[: len(order) // batch * batch].split(batch):
            loss = F.cross_entropy(network(image[rows]), label[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    network.eval()
    predicted = network(torch.from_numpy(test["image"])).argmax(1).numpy()
    return 100 * float(np.mean(predicted == test["label"]))


def main():
    train, test = split_digits()
    if "--check" in sys.argv[1:]:
        for seed in range(5):
            print(f"seed {seed}: test accuracy {accuracy_in_pytorch(train, test, seed):.1f} %")
        return
    np.savez_compressed(HERE / "train.npz", **train)
    np.savez_compressed(HERE / "test.npz", **test)
    export(HERE / "digits.onnx")


if __name__ == "__main__":
    main()
