"""The benchmarks on the command line: `python -m benchmarks NAME`, or `parsecaps bench NAME` in a checkout."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from parsecaps.cli.command import Given, command
from parsecaps.cli.output import console, display
from parsecaps.config import Config

app = typer.Typer(
    help="What parsecaps costs, and whether its routes matter, measured on the machine at hand.",
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_show_locals=False,
)


@app.command()
@command()
def speed(
    preset: Annotated[list[str] | None, typer.Option(help="Only this preset; may be repeated.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few turns, not compiled: a minute or so, and noisy.")] = False,
    no_compile: Annotated[
        bool, typer.Option("--no-compile", help="Leave out torch.compile, which takes minutes.")
    ] = False,
) -> dict[str, Any]:
    """Measure the speed and memory of the layers on this machine.

    Prints entmax against its peers, images per second of each preset beside a plain CNN of equal FLOPs, both as a share
    of the fastest matrix product measured, and the peak memory of a training step. Competitors take turns and the best
    turn counts; look at the ratios, for the times are those of this machine, now.

    **Examples**

    `parsecaps bench speed --quick`

    `parsecaps bench speed --preset medical --json speed.json`
    """
    from benchmarks.speed import PRESETS, SpeedBench
    from benchmarks.tables import entmax_table, memory_table, throughput_table

    out, notes = console(), console(stderr=True)
    bench = SpeedBench(preset or PRESETS, quick=quick, compiled=not (quick or no_compile))
    out.print(bench.machine, highlight=False)
    with notes.status("entmax"):
        entmax = bench.entmax()
    out.print(entmax_table(entmax))
    with notes.status("throughput") as status:
        rows = bench.throughput(log=status.update)
    out.print(throughput_table(rows, bench.peak.flops_per_second))
    out.print(
        f"peak: {bench.peak.flops_per_second / 1e9:.1f} GFLOP/s, float32 product of {bench.peak.width} x "
        f"{bench.peak.width} matrices; a training step counts as three forward passes",
        highlight=False,
    )
    with notes.status("memory of a training step"):
        memory = bench.memory()
    out.print(memory_table(memory, f"peak memory of a training step, {bench.presets[0]}"))
    for line in bench.remarks:
        out.print(line, highlight=False)
    return bench.as_dict(entmax, rows, memory)


@app.command()
@command()
def reading(
    quick: Annotated[bool, typer.Option("--quick", help="Few turns: some seconds, and noisy.")] = False,
) -> dict[str, Any]:
    """Measure what it costs to read files in processes of their own.

    Prints images per second, read and prepared, one after another in one process beside those of the readers, which
    hold whatever a file does to them.

    **Example**

    `parsecaps bench reading --json reading.json`
    """
    from benchmarks.reading import time_reading
    from benchmarks.timing import QUICK, Effort

    with console(stderr=True).status("reading files"):
        rows = time_reading(QUICK if quick else Effort())
    for row in rows:
        console().print(
            f"{row.kind}: {row.here:,.0f} images/s in one process, {row.readers:,.0f} by the readers: "
            f"{row.ratio:.2f} x",
            highlight=False,
        )
    return {row.kind: {**asdict(row), "ratio": row.ratio} for row in rows}


@app.command()
@command()
def data(
    preset: Annotated[str, typer.Option(help="The network that is fed.")] = "medical",
    images: Annotated[
        int, typer.Option(help="Phantom images to prepare and go through for the memory; 0 for none.")
    ] = 5000,
) -> dict[str, Any]:
    """Measure whether training waits for data, and how much memory many images need.

    Prints images per second of the loader, with augmentation, beside those of a training step; and the peak memory of
    preparing a phantom of so many images and going through it once.

    **Example**

    `parsecaps bench data --images 50000 --json loading.json`
    """
    from benchmarks.data import measure_loading_memory, time_loading
    from benchmarks.timing import Effort

    out = console()
    with console(stderr=True).status("loader and training step"):
        speed = time_loading(preset, Effort())
    out.print(
        f"{preset}, {speed.image_size} px: the loader gives {speed.loader:,.0f} images/s, a training step takes "
        f"{speed.training:,.0f}: {speed.ratio:.1f} x",
        highlight=False,
    )
    result = {"speed": {**asdict(speed), "ratio": speed.ratio}}
    if images:
        with console(stderr=True).status(f"{images:,} phantom images"):
            memory = measure_loading_memory(f"phantom:n={images}", 64)
        out.print(
            f"{images:,} phantom images at 64 px: prepared in {memory.prepare_seconds:.0f} s, one epoch in "
            f"{memory.epoch_seconds:.0f} s, peak memory {memory.peak / 1e6:,.0f} MB",
            highlight=False,
        )
        result["memory"] = asdict(memory)
    return result


@app.command()
@command(Config)
def training(
    given: Given[Config],
    data: Annotated[str, typer.Argument(metavar="DATA", help="What to train on, as for parsecaps train.")],
    epochs: Annotated[int, typer.Option(help="Epochs to train; between them, bare steps are measured.")] = 4,
) -> dict[str, Any]:
    """Measure what training costs beside the model: steps of a real run against bare steps, in turns.

    A bare step is model, losses, gradients and the optimizer on a batch that lies ready. The run adds the loader with
    its augmentation, progress, logs and checkpoints. Nothing of the run is kept.

    **Example**

    `parsecaps bench training data/cemri --epochs 4 --json training.json`
    """
    from benchmarks.training import time_training

    with console(stderr=True).status("training") as status:
        speed = time_training(given.load({"data.path": data}), epochs=epochs, log=status.update)
    console().print(
        f"{speed.preset}, {speed.image_size} px, batch {speed.batch_size}: a step takes {1000 * speed.in_run:.0f} ms "
        f"in the run ({speed.steps_in_run:,} steps) and {1000 * speed.bare:.0f} ms bare ({speed.bare_steps:,}): "
        f"{speed.share:.0%} of the bare throughput",
        highlight=False,
    )
    return {**asdict(speed), "share": speed.share}


@app.command()
@command(Config)
def routes(
    given: Given[Config],
    data: Annotated[
        str | None, typer.Argument(metavar="[DATA]", help="As for parsecaps train; synthetic images if left out.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where to train: the run and its twin are made in it.")
    ] = None,
    no_twin: Annotated[bool, typer.Option("--no-twin", help="Leave out the twin: half the time.")] = False,
    run: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Train nothing; test this run, on its own test part.")
    ] = None,
    twin: Annotated[Path | None, typer.Option(metavar="RUN", help="The twin of that run.")] = None,
) -> dict[str, Any]:
    """Test what a network loses with other couplings than its own.

    Trains a run, and its twin whose couplings follow from place alone (no content), with the same data, order, schedule
    and seed. Then replaces the couplings of the first on its test part, without training anew: by uniform ones, those
    of another image, the mean over images, and by each parent's strongest 1, 2 and 4 children. Differences come with
    95 % intervals over patients. A verdict per criterion; the exit code does not depend on it. What is trained already
    in FOLDER is not trained again.

    **Examples**

    `parsecaps bench routes --out runs/parts` (synthetic images, a minute or two)

    `parsecaps bench routes data/mnist --config mnist --set training.seed=1 --out runs/mnist --json routes.json`

    `parsecaps bench routes --run runs/mnist/run --twin runs/mnist/twin` (the second one may be left out)
    """
    if twin is not None and run is None:
        raise ValueError("--twin stands beside --run; give the run that it is the twin of")
    if run is not None and (data is not None or out is not None or given.file or given.lines or no_twin):
        raise ValueError("--run tests a run on its own data; give nothing beside it but --twin and --json")
    if run is None and out is None:
        raise ValueError("there is no folder to train in; give --out, or a trained run with --run")
    from benchmarks.tables import criteria_lines
    from parsecaps.audit.result import couplings_table
    from parsecaps.cli.progress import showing_training
    from studies.routes import PARTS_REMARK, measure_run, routes_config, train_with_twin

    synthetic = run is None and data is None
    if run is None:
        assert out is not None
        chosen = routes_config(data, out, config=given.file, settings=given.lines)
        with showing_training() as callbacks:
            trained, other = train_with_twin(chosen, out, twin=not no_twin, callbacks=callbacks)
        run, twin = trained.folder, None if other is None else other.folder
    with console(stderr=True).status("reading the images") as status:
        result = measure_run(run, twin, log=status.update)
    display(couplings_table(result.run, result.compared))
    for line in [*result.notes, *criteria_lines(result), *([PARTS_REMARK] if synthetic else [])]:
        console().print(line, highlight=False)
    return {**asdict(result), "criteria": [asdict(criterion) for criterion in result.criteria]}


@app.command()
@command()
def routing(
    batch: Annotated[list[int] | None, typer.Option(min=1, help="Images at a time; may be repeated.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few turns, no memory: a minute or so, and noisy.")] = False,
) -> dict[str, Any]:
    """Measure SAA routing beside attention, self-attention and dynamic routing in the paper's three-layer network.

    Prints images per second of the routing alone and of the network, forward and training, multiply-adds of one image
    and the peak memory of a training step, with the ratios that are wanted and those of the paper. All take turns in
    one run, and the best turn counts; look at the ratios.

    **Examples**

    `parsecaps bench routing --quick`

    `parsecaps bench routing --batch 1 --batch 128 --json routing.json`
    """
    from benchmarks.routing import cost_table, lines, time_table
    from benchmarks.timing import QUICK, Effort
    from parsecaps.paper.routing_speed import BATCH_SIZES, SCOPES, measure_routings

    with console(stderr=True).status("routings") as status:
        speed = measure_routings(
            QUICK if quick else Effort(rounds=10, seconds=10.0),
            batch_sizes=batch or BATCH_SIZES,
            memory=not quick,
            log=status.update,
        )
    out = console()
    out.print(cost_table(speed))
    for scope in SCOPES:
        out.print(time_table(speed, scope))
    for line in lines(speed):
        out.print(line, highlight=False)
    return speed.as_dict()


@app.command()
@command()
def complexity(
    quick: Annotated[bool, typer.Option("--quick", help="Few turns, no memory: some seconds, and noisy.")] = False,
    out: Annotated[Path | None, typer.Option(metavar="PNG", help="Draw the growth as a picture.")] = None,
) -> dict[str, Any]:
    """Measure how each routing grows with its children, from 64 to 4,096: time, multiply-adds and memory.

    Prints a table for each, with the exponent of the power law through the sizes. Cells have a quarter as many parents
    as children; layers to classes have ten parents.

    **Example**

    `parsecaps bench complexity --out complexity.png --json complexity.json`
    """
    from benchmarks.complexity import draw_growth, growth_tables, measure_growth
    from benchmarks.timing import QUICK, Effort

    with console(stderr=True).status("routings") as status:
        growths = measure_growth(QUICK if quick else Effort(), memory=not quick, log=status.update)
    for table in growth_tables(growths):
        console().print(table)
    if out is not None:
        draw_growth(growths, out)
        display(f"picture: {out}")
    return {"routings": [each.as_dict() for each in growths]}


@app.command()
@command()
def explanation(
    head: Annotated[str, typer.Option(help="parallel or bottleneck.")] = "parallel",
    turns: Annotated[int, typer.Option(help="The best of so many counts.")] = 12,
) -> dict[str, Any]:
    """Measure how long the explanation of one image takes: eight maps and three parse trees, at 224 pixels.

    **Example**

    `parsecaps bench explanation --head bottleneck`
    """
    from benchmarks.explanation import best_turn

    wall, processor = best_turn(head, turns)
    console().print(f"{head} head: {wall:.3f} s, {processor:.3f} s of the processor", highlight=False)
    return {"head": head, "seconds": wall, "processor_seconds": processor}


@app.command()
@command()
def exported(
    size: Annotated[list[int] | None, typer.Option(help="Pixels along a side; may be repeated.")] = None,
    maps: Annotated[bool, typer.Option("--maps", help="Explain the image, too.")] = False,
    turns: Annotated[int, typer.Option(help="The median of so many counts.")] = 60,
) -> dict[str, Any]:
    """Measure how fast ONNX Runtime answers one image, beside PyTorch, on one thread each.

    **Example**

    `parsecaps bench exported --size 112 --size 224`
    """
    from benchmarks.exported import time_exported

    found = []
    for each in size or [112, 224]:
        with console(stderr=True).status(f"exporting at {each} px"):
            speed = time_exported(each, maps=maps, turns=turns)
        console().print(
            f"{each} px: {speed.megabytes:.1f} MB, written in {speed.write_seconds:.1f} s, opened in "
            f"{speed.open_seconds:.1f} s; PyTorch {1000 * speed.eager:.1f} ms, ONNX Runtime "
            f"{1000 * speed.runtime:.1f} ms: {speed.ratio:.2f} x",
            highlight=False,
        )
        found.append({**asdict(speed), "ratio": speed.ratio})
    return {"sizes": found}


@app.command()
@command()
def serving(
    model: Annotated[
        Path | None, typer.Argument(metavar="[MODEL]", help="A run or a saved model; a new one if left out.")
    ] = None,
    clients: Annotated[int, typer.Option(min=1, max=1000, help="How many ask at a time.")] = 32,
    seconds: Annotated[float, typer.Option(min=1, max=3600, help="How long they ask.")] = 30.0,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one setting; may be repeated.")
    ] = None,
) -> dict[str, Any]:
    """Measure `parsecaps serve` under load on this machine, beside the bare model in the same run.

    Prints images per second, their share of the bare model's at its best batch size, errors, how long answers take, and
    how the memory grows, each beside its bar; and the processor's time for an image, which other work on the machine
    changes little. `--set` takes the settings of the server.

    **Examples**

    `parsecaps bench serving --seconds 10`

    `parsecaps bench serving runs/cases-1 --clients 32 --seconds 300 --json serving.json`
    """
    from benchmarks.serving import measure_serving
    from benchmarks.tables import serving_table

    with console(stderr=True).status("serving") as status:
        found = measure_serving(model, clients=clients, seconds=seconds, settings=settings or [], log=status.update)
    out = console()
    for line in found.lines():
        out.print(line, highlight=False, soft_wrap=True)
    out.print(serving_table([found.one, found.many]))
    for name, value, bar, met in found.bars():
        out.print(f"{'met' if met else 'MISSED'}: {value} {name} ({bar})", highlight=False)
    return found.as_dict()


@app.command()
@command()
def house(
    root: Annotated[Path, typer.Argument(help="The folder of a checkout.")] = Path(__file__).parents[1],
) -> dict[str, Any]:
    """Print how large the code is and how much of it a command runs, each number beside its bar.

    **Example**

    `parsecaps bench house --json house.json`
    """
    from benchmarks.house import measure_house
    from benchmarks.tables import bars_table

    with console(stderr=True).status("training and explaining"):
        measured = measure_house(root)
    out = console()
    out.print(bars_table(measured.bars))
    for place in measured.equal:
        out.print(f"equal lines: {place}", highlight=False)
    for file, lines in measured.largest.items():
        out.print(f"{lines:4} lines: {file}", highlight=False)
    return asdict(measured)


if __name__ == "__main__":
    app(prog_name="python -m benchmarks")
