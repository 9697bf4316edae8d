"""What does serving cost? Many clients ask `parsecaps serve` at this machine, beside the bare model in the same run.

The server is a process of its own. The clients share one process with as little work of their own as possible, on the
same cores as the server. Beside what the clock says stands the processor's time for an image, of the bare model and of
server and clients together: other work on the machine changes the first much, the second little.
"""

import asyncio
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from io import BytesIO
from itertools import chain
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import torch
from PIL import Image

from parsecaps.data.preparation import Preparation
from parsecaps.model import Model
from parsecaps.models import ParseCaps
from parsecaps.prediction.predict import answer
from parsecaps.serve.runtime import Network, choose_runtime

SIZE, CONCEPTS, CLASSES = 224, 7, 2
_BATCH_SIZES = (8, 16, 32, 64)
_SIDE = 256  # pixels of the JPEG files that are sent
_FILES = 16
_START_SECONDS = 120.0
_BARE_SECONDS, _ONE_SECONDS = 24.0, 20.0  # at most, for the bare model (before and after) and for one client
_SAMPLES = 50  # of memory
_RATIOS = ("share", "torch_share", "processor_share", "growth", "slowest")

Log = Callable[[str], None]


@dataclass(frozen=True)
class BareModel:
    """The most images per second of the model alone: at which batch size, and in how many threads.

    `processor` is the seconds that an image took of the processor then, of all cores together.
    """

    images_per_second: float
    batch_size: int
    workers: int
    threads: int
    processor: float


@dataclass(frozen=True)
class Load:
    """What some clients saw: answers and errors, and the seconds that answers took.

    `server` and `client` are the seconds that an answer took of the processor, there and here.
    """

    clients: int
    seconds: float
    answers: int
    errors: int
    p50: float
    p95: float
    p99: float
    server: float = 0.0
    client: float = 0.0

    @property
    def images_per_second(self) -> float:
        return self.answers / self.seconds


@dataclass(frozen=True)
class Serving:
    """The bare model, one client, many clients, and the memory of the server with its readers, in bytes.

    `bare` and its `latency`, the seconds for one image, are of PyTorch; `exported` is the same model in ONNX Runtime,
    None where that cannot be. `runtime` is which of them the server answered by. Memory goes up and down with the
    batches: it is the median in the second and in the last fifth of the time.
    """

    bare: BareModel
    exported: BareModel | None
    latency: float
    runtime: str
    one: Load
    many: Load
    memory_before: int
    memory_after: int

    @property
    def same(self) -> BareModel:
        """The bare model in the runtime that the server answered by."""
        return self.exported if self.exported is not None and self.runtime.startswith("ONNX") else self.bare

    @property
    def share(self) -> float:
        """Of the throughput of the bare model in the same runtime."""
        return self.many.images_per_second / self.same.images_per_second

    @property
    def torch_share(self) -> float:
        """Of the throughput of the bare model in PyTorch."""
        return self.many.images_per_second / self.bare.images_per_second

    @property
    def processor_share(self) -> float:
        """The same as `share` by the processor's time: what would arrive if nothing else ran."""
        return self.same.processor / max(self.many.server + self.many.client, 1e-9)

    @property
    def growth(self) -> float:
        """Of the memory, as a part of it."""
        return self.memory_after / self.memory_before - 1

    @property
    def slowest(self) -> float:
        """The 99th percentile under load as a multiple of the time that a lone client waits."""
        return self.many.p99 / self.one.p50

    def bars(self) -> list[tuple[str, str, str, bool]]:
        """Each number with its bar, and whether it is met."""
        errors = self.one.errors + self.many.errors
        return [
            ("of the bare model in the same runtime", f"{self.share:.0%}", "at least 80 %", self.share >= 0.8),
            ("errors", f"{errors:,}", "none", errors == 0),
            ("growth of memory", f"{self.growth:.1%}", "below 5 %", self.growth < 0.05),
            ("p99 beside one client's p50", f"{self.slowest:.1f} x", "below 10 x", self.slowest < 10),
        ]

    def as_dict(self) -> dict[str, Any]:
        """All of it, for JSON."""
        ratios = {name: getattr(self, name) for name in _RATIOS}
        return {**asdict(self), **ratios, "p99_by_latency": self.many.p99 / self.latency}

    def lines(self) -> list[str]:
        """What there is to know beside the bars."""
        many = self.many
        bare = [("PyTorch", self.bare), *([("ONNX Runtime", self.exported)] if self.exported else [])]
        return [
            *(f"bare model in {name}: {_described(found)}" for name, found in bare),
            f"bare model in PyTorch, one image: {1000 * self.latency:.1f} ms; p99 under load is "
            f"{many.p99 / self.latency:.1f} x that",
            f"served by {self.runtime}: {1000 * many.server:.2f} ms of the processor an image, and "
            f"{1000 * many.client:.2f} ms for the client: {self.processor_share:.0%} of the bare model in the same "
            "runtime would arrive if nothing else ran",
            f"served: {self.torch_share:.0%} of the bare model in PyTorch",
        ]


def _described(bare: BareModel) -> str:
    how = f"batch {bare.batch_size}, {bare.workers} x {bare.threads} threads"
    return f"{bare.images_per_second:,.1f} images/s ({how}), {1000 * bare.processor:.2f} ms of the processor an image"


def measure_serving(
    folder: Path | None, *, clients: int = 32, seconds: float = 30.0, settings: list[str], log: Log = lambda text: None
) -> Serving:
    """Measure a saved model, or a new one of the preset medical at 224 pixels."""
    with tempfile.TemporaryDirectory() as place:
        if folder is None:
            folder = Path(place) / "model"
            new_model().save(folder)
        model = Model.load(folder, "cpu")
        networks = _networks(model)
        log("the bare model")
        bare_seconds = min(seconds / 3, _BARE_SECONDS)
        first = {name: bare_model(model, bare_seconds, networks[name]) for name in networks}
        latency = bare_latency(model)
        with _server(folder, settings) as (process, port):
            runtime = _served_by(port)
            log("one client")
            one = _watched_load(process, port, 1, min(seconds / 5, _ONE_SECONDS))
            log(f"{clients} clients")
            memory: list[int] = []
            over = threading.Event()
            watch = threading.Thread(target=_watch, args=(process, memory, seconds / _SAMPLES, over))
            watch.start()
            many = _watched_load(process, port, clients, seconds)
            over.set()
            watch.join()
        log("the bare model")
        last = {name: bare_model(model, bare_seconds, networks[name]) for name in networks}
        latency = min(latency, bare_latency(model))
    bare = {name: max(first[name], last[name], key=lambda each: each.images_per_second) for name in networks}
    fifth = len(memory) // 5
    before, after = (int(np.median(part)) for part in (memory[fifth : 2 * fifth], memory[-fifth:]))
    return Serving(bare["torch"], bare.get("onnx"), latency, runtime, one, many, before, after)


def _networks(model: Model) -> dict[str, Network]:
    """The model in PyTorch, and in ONNX Runtime where that can be."""
    found = choose_runtime(model, "auto")
    return {"torch": partial(answer, model), found.name: found.network}


def new_model() -> Model:
    """A model with random weights."""
    torch.manual_seed(0)
    model = ParseCaps.from_preset("medical", num_classes=CLASSES, num_concepts=CONCEPTS, in_channels=3, image_size=SIZE)
    names = [tuple(f"{what} {i}" for i in range(count)) for what, count in (("class", CLASSES), ("concept", CONCEPTS))]
    return Model(model.eval(), Preparation(size=SIZE, channels=3), names[0], names[1])


def bare_model(model: Model, seconds: float, network: Network | None = None) -> BareModel:
    """Try batch sizes, with all cores for one batch and with one core for each of several, for so long in all."""
    network = network or partial(answer, model)
    cores, before = len(os.sched_getaffinity(0)), torch.get_num_threads()
    ways = [(size, *way) for size in _BATCH_SIZES for way in {(1, cores), (cores, 1)}]
    found = []
    try:
        for size, workers, threads in ways:
            torch.set_num_threads(threads)
            before_it = time.process_time()
            count, speed = _bare(model, network, size, workers, seconds / len(ways))
            found.append(BareModel(speed, size, workers, threads, (time.process_time() - before_it) / count))
    finally:
        torch.set_num_threads(before)
    return max(found, key=lambda each: each.images_per_second)


def bare_latency(model: Model, turns: int = 40) -> float:
    """The median of the seconds that PyTorch takes for one image, on one thread, as a worker of the server has it."""
    image, taken, before = _images(model, 1), [], torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for _ in range(turns):
            begun = time.perf_counter()
            answer(model, image)
            taken.append(time.perf_counter() - begun)
    finally:
        torch.set_num_threads(before)
    return float(np.median(taken))


def _images(model: Model, count: int) -> torch.Tensor:
    preparation = model.preparation
    return torch.rand(count, preparation.channels, preparation.size, preparation.size)


def _bare(model: Model, network: Network, size: int, workers: int, seconds: float) -> tuple[int, float]:
    """How many images the model answered, that of the trial before too, and how many a second."""
    images = _images(model, size)
    counts = [0] * workers
    ends = [0.0] * workers

    def work(number: int) -> None:
        while time.perf_counter() < end:
            network(images)
            counts[number] += size
            ends[number] = time.perf_counter()

    network(images)
    begun = time.perf_counter()
    end = begun + seconds
    threads = [threading.Thread(target=work, args=(number,)) for number in range(workers)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return size + sum(counts), sum(count / (last - begun) for count, last in zip(counts, ends, strict=True))


@contextmanager
def _server(folder: Path, settings: list[str]) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """`parsecaps serve` on a free port of this machine, once it is ready."""
    chosen = [word for setting in settings for word in ("--set", setting)]
    command = [sys.executable, "-m", "parsecaps", "serve", str(folder), "--port", "0", "--device", "cpu", *chosen]
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as process:
        try:
            assert process.stdout is not None
            found = re.search(r":(\d+)$", process.stdout.readline().strip())
            if found is None:
                raise OSError("the server did not start; run parsecaps serve to see why")
            asyncio.run(_until_ready(int(found[1])))
            yield process, int(found[1])
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait()


def _served_by(port: int) -> str:
    """The runtime that answers."""
    with urlopen(f"http://127.0.0.1:{port}/api/model") as answered:
        found = json.load(answered)["runtime"]
    return f"{'ONNX Runtime' if found['name'] == 'onnx' else 'PyTorch'} {found['version']}"


async def _until_ready(port: int) -> None:
    end = time.monotonic() + _START_SECONDS
    request = f"GET /readyz HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode()
    while time.monotonic() < end:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            status = await _ask(reader, writer, request)
            writer.close()
            if status == 200:
                return
        except OSError:
            pass
        await asyncio.sleep(0.1)
    raise OSError(f"the server was not ready after {_START_SECONDS:.0f} s")


def _watched_load(process: subprocess.Popen[str], port: int, clients: int, seconds: float) -> Load:
    """The same as `_load`, with the processor's time of server and clients."""
    server, own = _tree_seconds(process), _own_seconds()
    found = asyncio.run(_load(port, clients, seconds))
    count = max(1, found.answers)
    spent = (_tree_seconds(process) - server) / count, (_own_seconds() - own) / count
    return replace(found, server=spent[0], client=spent[1])


async def _load(port: int, clients: int, seconds: float) -> Load:
    """Clients that each send the next image when the answer to the last one is there."""
    requests = [_request(port, number) for number in range(_FILES)]
    taken: list[float] = []
    errors = 0
    begun = time.perf_counter()
    end = begun + seconds

    async def client(number: int) -> None:
        nonlocal errors
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while time.perf_counter() < end:
            start = time.perf_counter()
            status = await _ask(reader, writer, requests[number % _FILES])
            number += 1
            if status == 200:
                taken.append(time.perf_counter() - start)
            else:
                errors += 1
        writer.close()

    await asyncio.gather(*(client(number) for number in range(clients)))
    p50, p95, p99 = np.percentile(taken or [np.inf], (50, 95, 99)).tolist()
    return Load(clients, time.perf_counter() - begun, len(taken), errors, p50, p95, p99)


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> int:
    """The status of the answer to a request; 599 where there is no answer, or one without a result."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"content-length: (\d+)", head.lower())
    body = await reader.readexactly(int(length[1]) if length else 0)
    status = int(head[9:12])
    return status if status != 200 or b'"status":"ready"' in body or b'"error":null' in body else 599


def _request(port: int, number: int) -> bytes:
    """A form with one JPEG file."""
    coarse = np.random.default_rng(number).integers(0, 256, (32, 32, 3), dtype=np.uint8)
    file = BytesIO()
    Image.fromarray(coarse).resize((_SIDE, _SIDE), Image.Resampling.BICUBIC).save(file, "JPEG")
    part = b'--x\r\nContent-Disposition: form-data; name="files"; filename="a.jpg"\r\nContent-Type: image/jpeg\r\n\r\n'
    body = part + file.getvalue() + b"\r\n--x--\r\n"
    head = f"POST /api/predict HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: multipart/form-data; boundary=x\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _watch(process: subprocess.Popen[str], memory: list[int], pause: float, over: threading.Event) -> None:
    while not over.wait(pause):
        memory.append(_tree_bytes(process))


def _tree_bytes(process: subprocess.Popen[str]) -> int:
    """Resident memory of a process and of all that it started."""
    lines = (line for text in _tree(process, "status") for line in text.splitlines())
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmRSS"))


def _tree_seconds(process: subprocess.Popen[str]) -> float:
    """Seconds of the processor that a process and all that it started have taken, in the system too."""
    ticks = (text.rpartition(")")[2].split()[11:13] for text in _tree(process, "stat"))
    return sum(map(int, chain.from_iterable(ticks))) / os.sysconf("SC_CLK_TCK")


def _own_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _tree(process: subprocess.Popen[str], name: str) -> Iterator[str]:
    """A file of the system about a process and each that it started."""
    left = [process.pid]
    while left:
        place = Path(f"/proc/{left.pop()}")
        try:
            yield (place / name).read_text(encoding="utf-8", errors="replace")
            left += [int(child) for task in place.glob("task/*/children") for child in task.read_text().split()]
        except OSError:
            continue
