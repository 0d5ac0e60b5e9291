#!/usr/bin/env python3
"""Time of a training step on several ranks (docs/guides/several-machines.md).

    bench/ranks.py speed   --data TEXT            one process with two threads, and two ranks with one thread each, in turn
    bench/ranks.py order   --data TEXT            one process: shards in a tree, in any order, and plain accumulation
    bench/ranks.py network --data TEXT [--mbit 1000 500]
                                                  two machines made of network namespaces, whose links pass so many megabits a
                                                  second, beside the formula; as root, with iproute2 and mpirun

[--qkv build/qkv] [--out runs/ranks] [--steps 30] [--rounds 3] [--width 256] [--layers 4]

A decoder of 4 heads on TEXT (a .txt file), 16 windows of 256 tokens a step in 8 shards. A time is the median of
steps from the fifth on, in milliseconds.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

CONFIG = """
data = {{ train = "{data}" }}
model = {{ context = 256, width = {width}, layers = {layers}, heads = 4 }}
train = {{ steps = {steps}, batch = 16, log_every = 1, eval_every = 100000, checkpoint_every = 100000, sample_tokens = 0 }}
"""
MPI = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
BRIDGE, PREFIX = "qkvbr", "10.97.5"


def step_ms(options, name, launcher, threads, *settings):
    """The median time of a step."""
    out = options.out / name
    command = [*launcher, options.qkv, "--threads", threads, "train", options.out / "run.toml", "--overwrite", "--set", f"train.out={out}"]
    for s in settings:
        command += ["--set", f"train.{s}"]
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, env=os.environ | MPI)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}\n{done.stderr}")
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    seconds = [m["seconds"] for m in lines if "loss" in m]
    return 1e3 * statistics.median(b - a for a, b in zip(seconds[4:], seconds[5:]))


def in_turn(options, cases):
    """Medians over rounds in which every case has its turn."""
    found = {name: [] for name in cases}
    for _ in range(options.rounds):
        for name, case in cases.items():
            found[name].append(step_ms(options, name.replace(" ", "_"), *case))
    return {name: statistics.median(times) for name, times in found.items()}


def speed(options):
    times = in_turn(options, {
        "one process of 2 threads": ([], 2, "accumulate=8", "batch=2"),
        "one process of 2 threads and 8 shards": ([], 2, "shards=8"),
        "2 ranks of 1 thread": (["mpirun", "-n", 2], 1, "shards=8"),
        "2 ranks of 1 thread and any order": (["mpirun", "-n", 2], 1, "shards=8", "shard_order=any"),
    })
    base = times["one process of 2 threads"]
    for name, ms in times.items():
        print(f"| {name} | {ms:.1f} ms | {base / ms:.3f} |", flush=True)


def order(options):
    for precision in "f32", "bf16":
        times = in_turn(options, {
            "accumulate": ([], 2, "accumulate=8", "batch=2", f"precision={precision}"),
            "tree": ([], 2, "shards=8", f"precision={precision}"),
            "any": ([], 2, "shards=8", "shard_order=any", f"precision={precision}"),
        })
        for name, ms in times.items():
            print(f"| {precision} | {name} | {ms:.1f} ms | {ms / times['accumulate']:.3f} |", flush=True)


class Machines:
    """Two network namespaces on a bridge. Each sends at most so many megabits a second."""

    def __init__(self, folder):
        self.folder = folder

    def run(self, *command, check=True):
        subprocess.run(list(map(str, command)), check=check, capture_output=not check)

    def __enter__(self):
        self.__exit__()
        self.run("ip", "link", "add", BRIDGE, "type", "bridge")
        self.run("ip", "addr", "add", f"{PREFIX}.1/24", "dev", BRIDGE)
        self.run("ip", "link", "set", BRIDGE, "up")
        for i in 1, 2:
            name = f"qkvm{i}"
            self.run("ip", "netns", "add", name)
            self.run("ip", "link", "add", f"{name}o", "type", "veth", "peer", "name", f"{name}i")
            self.run("ip", "link", "set", f"{name}i", "netns", name)
            self.run("ip", "link", "set", f"{name}o", "master", BRIDGE, "up")
            self.run("ip", "-n", name, "addr", "add", f"{PREFIX}.{10 + i}/24", "dev", f"{name}i")
            self.run("ip", "-n", name, "link", "set", f"{name}i", "up")
            self.run("ip", "-n", name, "link", "set", "lo", "up")
        # mpirun calls it in place of ssh, with a machine's name and a command.
        agent = self.folder / "agent.sh"
        agent.write_text("#!/bin/sh\nhost=$1; shift\nexec nsenter --net=\"/run/netns/qkvm${host##*.1}\" sh -c \"$*\"\n")
        agent.chmod(0o755)
        self.agent = agent
        return self

    def limit(self, mbit):
        for i in 1, 2:
            self.run("tc", "-n", f"qkvm{i}", "qdisc", "replace", "dev", f"qkvm{i}i", "root", "tbf", "rate", f"{mbit}mbit", "burst", "256kb",
                     "latency", "100ms")

    def launcher(self):
        hosts = ",".join(f"{PREFIX}.{10 + i}:1" for i in (1, 2))
        return ["mpirun", "-n", 2, "--host", hosts, "--mca", "plm_rsh_agent", self.agent, "--mca", "btl", "tcp,self", "--mca",
                "btl_tcp_if_include", f"{PREFIX}.0/24", "--mca", "oob_tcp_if_include", f"{PREFIX}.0/24", "--bind-to", "none", "--mca", "rtc", "^hwloc"]

    def __exit__(self, *_):
        for i in 1, 2:
            self.run("ip", "netns", "del", f"qkvm{i}", check=False)
            self.run("ip", "link", "del", f"qkvm{i}o", check=False)
        self.run("ip", "link", "del", BRIDGE, check=False)


def network(options):
    plan = subprocess.run([options.qkv, "plan", options.out / "run.toml", "--no-timing", "--json"], capture_output=True, text=True, check=True)
    parameters = json.loads(plan.stdout[plan.stdout.index("{"):])["parameters"]
    with Machines(options.out) as machines:
        # As fast as the memory lets them: what the ranks compute.
        free = step_ms(options, "network_free", machines.launcher(), 1, "shards=8", "precision=f32")
        sent = 2 * 4 * parameters * (2 - 1) / 2
        print(f"{parameters} parameters, {sent / 1e6:.1f} MB a rank and step; unlimited: {free:.1f} ms a step")
        print("| Mbit/s | measured | formula | ratio |\n|---|---|---|---|")
        for mbit in options.mbit:
            machines.limit(mbit)
            measured = step_ms(options, f"network_{mbit}", machines.launcher(), 1, "shards=8", "precision=f32")
            expected = free + 1e3 * sent * 8 / (mbit * 1e6)
            print(f"| {mbit} | {measured:.1f} ms | {expected:.1f} ms | {measured / expected:.3f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "order", "network"])
    parser.add_argument("--data", required=True, type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("--qkv", default="build/qkv", type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("--out", default="runs/ranks", type=lambda p: pathlib.Path(p).resolve())
    parser.add_argument("--steps", default=30, type=int)
    parser.add_argument("--rounds", default=3, type=int)
    parser.add_argument("--width", default=256, type=int)
    parser.add_argument("--layers", default=4, type=int)
    parser.add_argument("--mbit", default=[1000], nargs="+", type=int)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / "run.toml").write_text(CONFIG.format(**vars(options)))
    {"speed": speed, "order": order, "network": network}[options.what](options)


main()
