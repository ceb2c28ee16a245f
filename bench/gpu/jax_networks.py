"""The networks of workloads.py in JAX: functions of (weights by PyTorch's names, settings, inputs). float32 where nothing is cast."""
import functools

import jax
import jax.numpy as jnp


def linear(w, name, x):
    return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]


def layer_norm(w, name, x):
    wide = x.astype(jnp.float32)
    mean = wide.mean(-1, keepdims=True)
    variance = ((wide - mean) ** 2).mean(-1, keepdims=True)
    return ((wide - mean) * jax.lax.rsqrt(variance + 1e-5)).astype(x.dtype) * w[f"{name}.weight"] + w[f"{name}.bias"]


def batch_norm(w, name, x):
    """By the batch's statistics. The running ones, which the step does not need, are left out: a little less work than PyTorch's."""
    wide = x.astype(jnp.float32)
    mean, variance = wide.mean((0, 1, 2)), wide.var((0, 1, 2))
    return ((wide - mean) * jax.lax.rsqrt(variance + 1e-5)).astype(x.dtype) * w[f"{name}.weight"] + w[f"{name}.bias"]


def convolution(w, name, x, stride=1, pad=0):
    """x is [batch, height, width, channels]: the faster layout on a GPU."""
    kernel = w[f"{name}.weight"].transpose(2, 3, 1, 0)
    y = jax.lax.conv_general_dilated(x, kernel, (stride, stride), [(pad, pad)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC"))
    return y + w[f"{name}.bias"] if f"{name}.bias" in w else y


def attention(w, name, x, heads, causal):
    batch, length, width = x.shape
    q, k, v = (part.reshape(batch, length, heads, width // heads) for part in jnp.split(linear(w, f"{name}.qkv", x), 3, -1))
    # cuDNN through JAX 0.11 refuses 197 positions, and takes 512 and 1024.
    flash = "cudnn" if x.dtype == jnp.bfloat16 and jax.default_backend() == "gpu" and length % 2 == 0 else None
    mixed = jax.nn.dot_product_attention(q, k, v, is_causal=causal, implementation=flash)
    return linear(w, f"{name}.out", mixed.reshape(batch, length, width))


def block(w, name, x, heads, causal=False, norm_first=True, tanh_gelu=False):
    feed = lambda x: linear(w, f"{name}.down", jax.nn.gelu(linear(w, f"{name}.up", x), approximate=tanh_gelu))
    if norm_first:
        x = x + attention(w, f"{name}.attention", layer_norm(w, f"{name}.norm1", x), heads, causal)
        return x + feed(layer_norm(w, f"{name}.norm2", x))
    x = layer_norm(w, f"{name}.norm1", x + attention(w, f"{name}.attention", x, heads, causal))
    return layer_norm(w, f"{name}.norm2", x + feed(x))


def mlp(w, s, x):
    return linear(w, "2", jax.nn.relu(linear(w, "0", x)))


def gpt(w, s, ids):
    x = w["tokens.weight"][ids] + w["positions"]
    for i in range(s["layers"]):
        x = block(w, f"blocks.{i}", x, s["heads"], causal=True, tanh_gelu=True)
    return layer_norm(w, "norm", x) @ w["tokens.weight"].T


def bert(w, s, ids):
    x = layer_norm(w, "norm", w["tokens.weight"][ids] + w["positions"] + w["kind"])
    for i in range(s["layers"]):
        x = block(w, f"blocks.{i}", x, s["heads"], norm_first=False)
    return linear(w, "classifier", jnp.tanh(linear(w, "pooler", x[:, 0])))


def vit(w, s, image):
    x = convolution(w, "patches", image.transpose(0, 2, 3, 1), s["patch"])
    x = x.reshape(x.shape[0], -1, s["width"])
    token = jnp.broadcast_to(w["token"], (x.shape[0], 1, s["width"]))
    x = jnp.concatenate([token, x], 1) + w["positions"]
    for i in range(s["layers"]):
        x = block(w, f"blocks.{i}", x, s["heads"])
    return linear(w, "head", layer_norm(w, "norm", x)[:, 0])


def bottleneck(w, name, x, stride):
    y = jax.nn.relu(batch_norm(w, f"{name}.norm1", convolution(w, f"{name}.conv1", x)))
    y = jax.nn.relu(batch_norm(w, f"{name}.norm2", convolution(w, f"{name}.conv2", y, stride, 1)))
    kept = batch_norm(w, f"{name}.norm4", convolution(w, f"{name}.conv4", x, stride)) if f"{name}.conv4.weight" in w else x
    return jax.nn.relu(batch_norm(w, f"{name}.norm3", convolution(w, f"{name}.conv3", y)) + kept)


def resnet(w, s, image):
    x = jax.nn.relu(batch_norm(w, "norm", convolution(w, "conv", image.transpose(0, 2, 3, 1), 2, 3)))
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 3, 3, 1), (1, 2, 2, 1), ((0, 0), (1, 1), (1, 1), (0, 0)))
    number = 0
    for stage, count in enumerate(s["blocks"]):
        for i in range(count):
            x = bottleneck(w, f"blocks.{number}", x, 2 if stage and not i else 1)
            number += 1
    return linear(w, "head", x.mean((1, 2)))


gelu = functools.partial(jax.nn.gelu, approximate=True)

NETWORKS = {
    "mlp": mlp, "gpt": gpt, "bert": bert, "vit": vit, "resnet": resnet,
    "matmul": lambda w, s, x: x @ w["weight"],
    "layer_norm": lambda w, s, x: layer_norm(w, "norm", x * w["scale"]),
    "pointwise": lambda w, s, x: gelu(x + w["weight"]) * jnp.tanh(x),
    "softmax": lambda w, s, x: jax.nn.softmax(x * w["weight"], -1),
    "transpose": lambda w, s, x: gelu(x.transpose(0, 2, 1) + w["weight"]),
}


def loss_of(loss, output, label):
    if loss == "mse":
        return ((output - label) ** 2).mean()
    chosen = jnp.take_along_axis(output, label[..., None], -1)[..., 0]
    return (jax.nn.logsumexp(output, -1) - chosen).mean()
