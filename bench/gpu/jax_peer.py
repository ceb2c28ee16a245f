"""JAX's training step on one workload, jitted as a whole with donated weights, timed in a process of its own.

    python jax_peer.py WORKLOAD --models FOLDER [--size full|smoke] [--precision f32|tf32|bf16] [--device cuda|cpu] [--steps 50] [--warmup 10]

FOLDER holds the records of make_models.py: names and shapes of the weights. Prints one line of JSON, as torch_peer.py does.
"""
import argparse
import json
import os
import pathlib
import time

import numpy as np

from drawing import draw_batch, draw_weight
from workloads import COMPARED_LOSSES, PRECISIONS, WORKLOADS



def adam_update(jnp, settings, count, weight, gradient, first, second):
    rate, decay = settings["lr"], settings.get("weight_decay", 0.01 if settings["name"] == "adamw" else 0)
    weight = weight * (1 - rate * decay) if settings["name"] == "adamw" else weight
    first, second = 0.9 * first + 0.1 * gradient, 0.999 * second + 0.001 * gradient**2
    scale = jnp.sqrt(second / (1 - 0.999**count)) + 1e-8
    return weight - rate / (1 - 0.9**count) * first / scale, first, second


def sgd_update(settings, weight, gradient, momentum):
    momentum = settings.get("momentum", 0) * momentum + gradient + settings.get("weight_decay", 0) * weight
    return weight - settings["lr"] * momentum, momentum


def training_step(jax, workload, settings, precision):
    """step(weights, moments, count, inputs, label) -> (weights, moments, count, loss); moments are a pair of dictionaries."""
    import jax.numpy as jnp

    import jax_networks

    network, how = jax_networks.NETWORKS[workload.network], workload.optimizer

    def loss_of(weights, inputs, label):
        if precision == "bf16":
            weights = {name: w.astype(jnp.bfloat16) for name, w in weights.items()}
            inputs = [x.astype(jnp.bfloat16) if x.dtype == jnp.float32 else x for x in inputs]
        return jax_networks.loss_of(workload.loss, network(weights, settings, *inputs).astype(jnp.float32), label)

    def step(weights, moments, count, inputs, label):
        loss, gradients = jax.value_and_grad(loss_of)(weights, inputs, label)
        count, updated, first, second = count + 1, {}, {}, {}
        for name, weight in weights.items():
            if how["name"] == "sgd":
                updated[name], first[name] = sgd_update(how, weight, gradients[name], moments[0][name])
            else:
                updated[name], first[name], second[name] = adam_update(jnp, how, count, weight, gradients[name], moments[0][name],
                                                                       moments[1][name])
        return updated, (first, second), count, loss

    return jax.jit(step, donate_argnums=(0, 1, 2))


def take(step, state, batch):
    *state[:], loss = step(*state, *batch)
    return loss


def times_ms(run, steps):
    """Of each step until its loss is there. The host is one step ahead, as in training."""
    times, pending, begin = [], None, time.perf_counter()
    for number in range(steps + 1):
        queued = run() if number < steps else None
        if pending is not None:
            pending.block_until_ready()
            end = time.perf_counter()
            times.append(1e3 * (end - begin))
            begin = end
        pending = queued
    return times


def measure(options):
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    import jax

    # Without "highest" JAX takes TF32 on GPUs that have it.
    rounds = options.precision != "f32" and options.device != "cpu"
    jax.config.update("jax_default_matmul_precision", "tensorfloat32" if rounds else "highest")
    device = jax.devices("cpu" if options.device == "cpu" else "gpu")[0]
    workload = WORKLOADS[options.workload]
    start = time.perf_counter()
    record = json.loads((pathlib.Path(options.models) / f"{workload.name}.json").read_text())["weights"]
    trained = [w for w in record if not w["name"].endswith(("running_mean", "running_var"))]
    put = lambda array: jax.device_put(array, device)
    weights = {w["name"]: put(draw_weight(w["name"], w["shape"], w["role"])) for w in trained}
    zeros = lambda: {name: put(np.zeros(w.shape, np.float32)) for name, w in weights.items()}
    moments = (zeros(), {} if workload.optimizer["name"] == "sgd" else zeros())
    inputs, label = draw_batch(workload, options.size)
    batch = [put(array) for array in inputs.values()], put(label)
    step = training_step(jax, workload, workload.size(options.size).settings, options.precision)
    state, losses = [weights, moments, put(np.float32(0))], []
    for number in range(COMPARED_LOSSES + options.warmup):
        loss = take(step, state, batch)
        if number < COMPARED_LOSSES:
            losses.append(float(loss))
        if number + 1 == COMPARED_LOSSES:
            first = time.perf_counter() - start
    jax.block_until_ready(state)
    times = times_ms(lambda: take(step, state, batch), options.steps)
    memory = device.memory_stats() or {}
    report = {"losses": losses, "first_steps_seconds": first, "times_ms": times, "version": f"JAX {jax.__version__}",
              "device": device.device_kind}
    if "peak_bytes_in_use" in memory:
        report["allocated_bytes"] = memory["peak_bytes_in_use"]
    return report


def parse_options():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("workload", choices=WORKLOADS)
    options.add_argument("--models", required=True)
    options.add_argument("--size", choices=("full", "smoke"), default="full")
    options.add_argument("--precision", choices=PRECISIONS, default="f32")
    options.add_argument("--device", default="cuda")
    options.add_argument("--steps", type=int, default=50)
    options.add_argument("--warmup", type=int, default=10)
    return options.parse_args()


if __name__ == "__main__":
    print(json.dumps(measure(parse_options())))
