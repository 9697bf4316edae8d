"""The commands about the network itself: `summary`, `bench` and `bench routes`."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parsecaps.cli.output import ConfigFile, JsonFile, Settings, check_writable, console, one_line_errors, write_json

if TYPE_CHECKING:
    from studies.routes import RouteResult

bench_app = typer.Typer(rich_markup_mode="markdown")


@one_line_errors
def summary(
    preset: Annotated[str, typer.Argument(help="A named size: medical, digits, tiny ...")],
    size: Annotated[
        int | None, typer.Option(help="Width of the square image in pixels; the preset's own if left out.")
    ] = None,
    channels: Annotated[int, typer.Option(help="1 for grey, 3 for colour.")] = 1,
    classes: Annotated[int, typer.Option(help="Number of classes.")] = 3,
    concepts: Annotated[int | None, typer.Option(help="Number of concepts; 0 leaves out the decoder too.")] = None,
    head: Annotated[str, typer.Option(help="parallel (the paper's) or bottleneck.")] = "parallel",
    json_file: JsonFile = None,
) -> None:
    """Print the layer table: name, n, d, parameters and FLOPs of each layer.

    n capsules of d numbers come out of a layer. FLOPs are those of one image, two for each multiply-add of a
    convolution or matrix product.

    **Examples**

    `parsecaps summary medical`

    `parsecaps summary medical --size 512 --channels 3 --concepts 7 --head bottleneck`

    `parsecaps summary digits --classes 10 --json digits.json`
    """
    check_writable(json_file)
    from parsecaps.models import ParseCaps
    from parsecaps.models.summary import summarize
    from parsecaps.report.terminal import layer_table

    wanted = {"image_size": size, "num_concepts": concepts}
    changes: dict[str, Any] = {name: value for name, value in wanted.items() if value is not None}
    model = ParseCaps.from_preset(preset, num_classes=classes, in_channels=channels, head=head, **changes)
    rows = summarize(model)
    console().print(layer_table(rows, f"{preset}, {channels} x {model.image_size} x {model.image_size}"))
    layers = [asdict(row) for row in rows]
    write_json(json_file, {"preset": preset, "config": model.config, "layers": layers})


@bench_app.callback(invoke_without_command=True)
@one_line_errors
def bench(
    context: typer.Context,
    preset: Annotated[list[str] | None, typer.Option(help="Only this preset; may be repeated.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Few turns, not compiled: a minute or so, and noisy.")] = False,
    no_compile: Annotated[
        bool, typer.Option("--no-compile", help="Leave out torch.compile, which takes minutes.")
    ] = False,
    json_file: JsonFile = None,
) -> None:
    """Measure speed and memory on this machine; `parsecaps bench routes` tests whether the routes matter.

    Prints entmax against its peers, images per second of each preset beside a plain CNN of equal FLOPs, both as a share
    of the fastest matrix product measured, and the peak memory of a training step. Competitors take turns and the best
    turn counts; look at the ratios, for the times are those of this machine, now.

    **Examples**

    `parsecaps bench --quick`

    `parsecaps bench --preset medical --json speed.json`

    `parsecaps bench routes`
    """
    if context.invoked_subcommand is not None:
        if preset or quick or no_compile or json_file:
            raise ValueError(f"options go behind the name: parsecaps bench {context.invoked_subcommand} --help")
        return
    check_writable(json_file)
    from benchmarks import speed
    from parsecaps.report.terminal import entmax_table, memory_table, throughput_table

    out, notes = console(), console(stderr=True)
    bench = speed.SpeedBench(preset or speed.PRESETS, quick=quick, compiled=not (quick or no_compile))
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
    write_json(json_file, bench.as_dict(entmax, rows, memory))


@bench_app.command("data")
@one_line_errors
def bench_data(
    preset: Annotated[str, typer.Option(help="The network that is fed.")] = "medical",
    images: Annotated[
        int, typer.Option(help="Phantom images to prepare and go through for the memory; 0 for none.")
    ] = 5000,
    json_file: JsonFile = None,
) -> None:
    """Measure whether training waits for data, and how much memory many images need.

    Prints images per second of the loader, with augmentation, beside those of a training step; and the peak memory of
    preparing a phantom of so many images and going through it once.

    **Example**

    `parsecaps bench data --images 50000 --json loading.json`
    """
    check_writable(json_file)
    from benchmarks.loading import measure_loading_memory, time_loading
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
    write_json(json_file, result)


@bench_app.command("training")
@one_line_errors
def bench_training(
    data: Annotated[str, typer.Argument(metavar="DATA", help="What to train on, as for parsecaps train.")],
    epochs: Annotated[int, typer.Option(help="Epochs to train; between them, bare steps are measured.")] = 4,
    config: ConfigFile = None,
    settings: Settings = None,
    json_file: JsonFile = None,
) -> None:
    """Measure what training costs beside the model: steps of a real run against bare steps, in turns.

    A bare step is model, losses, gradients and the optimizer on a batch that lies ready. The run adds the loader with
    its augmentation, progress, logs and checkpoints. Nothing of the run is kept.

    **Example**

    `parsecaps bench training data/cemri --epochs 4 --json training.json`
    """
    check_writable(json_file)
    from benchmarks.training_speed import time_training
    from parsecaps.config import load_config

    with console(stderr=True).status("training") as status:
        speed = time_training(
            load_config(config, settings or []).change("data", path=data), epochs=epochs, log=status.update
        )
    console().print(
        f"{speed.preset}, {speed.image_size} px, batch {speed.batch_size}: a step takes {1000 * speed.in_run:.0f} ms "
        f"in the run ({speed.steps_in_run:,} steps) and {1000 * speed.bare:.0f} ms bare ({speed.bare_steps:,}): "
        f"{speed.share:.0%} of the bare throughput",
        highlight=False,
    )
    write_json(json_file, {**asdict(speed), "share": speed.share})


@bench_app.command()
@one_line_errors
def routes(
    data: Annotated[
        Path | None, typer.Argument(help="Folder with CE-MRI or MNIST; synthetic images if left out.")
    ] = None,
    epochs: Annotated[int | None, typer.Option(help="Epochs of training; the task's own number if left out.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the weights and of the order of the images.")] = 0,
    model: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Test this saved model instead of training.")
    ] = None,
    save: Annotated[Path | None, typer.Option(metavar="FOLDER", help="Save the trained model here.")] = None,
    run: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Test the model of this run, on its own test part.")
    ] = None,
    twin: Annotated[
        Path | None, typer.Option(metavar="RUN", help="The same run with model.settings.content=false.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Test whether the routes carry the decision.

    Trains the network, and its twin whose couplings follow from place alone (no content), with the same data, order,
    schedule and seed. Then replaces the couplings of the first: by uniform ones, and by each parent's strongest 1, 2
    and 4 children. A verdict per criterion; the exit code does not depend on it.

    **Examples**

    `parsecaps bench routes` (synthetic images, a minute or two)

    `parsecaps bench routes data/cemri --epochs 40 --save cemri-model --json routes.json`

    `parsecaps bench routes data/cemri --model cemri-model`

    `parsecaps bench routes data/mnist --seed 1`

    `parsecaps bench routes --run my-run --twin my-run-without-content` (the second one may be left out)
    """
    check_writable(json_file)
    if twin is not None and run is None:
        raise ValueError("--twin stands beside --run; give the run that it is the twin of")
    if run is not None:
        if any(option is not None for option in (data, epochs, model, save)):
            raise ValueError("--run tests a run on its own data; leave out DATA, --epochs, --model and --save")
        _routes_of_run(run, twin, json_file)
        return
    if model is not None and (epochs is not None or save is not None):
        raise ValueError("--model tests a model as it is; leave out --epochs and --save")
    if save is not None:
        save.mkdir(parents=True, exist_ok=True)  # if it cannot be, better now than after the training
    from parsecaps.models import load_model
    from parsecaps.report.terminal import criteria_lines, routes_table
    from studies.route_tasks import read_task
    from studies.routes import measure_routes

    out, given = console(), load_model(model) if model is not None else None
    with console(stderr=True).status("reading the images") as status:
        task = read_task(data, epochs=epochs, image_size=given.image_size if given is not None else None)
        result, tested = measure_routes(task, seed=seed, model=given, log=status.update)
    out.print(routes_table(result))
    for line in filter(None, [*criteria_lines(result), task.remark]):
        out.print(line, highlight=False)
    if save is not None:
        tested.save_pretrained(save)
    _write_routes(json_file, result)


def _routes_of_run(run: Path, twin: Path | None, json_file: Path | None) -> None:
    from parsecaps.report.terminal import criteria_lines, routes_table
    from studies.run_routes import measure_run

    with console(stderr=True).status("reading the images") as status:
        result = measure_run(run, twin, log=status.update)
    console().print(routes_table(result))
    for line in criteria_lines(result):
        console().print(line, highlight=False)
    _write_routes(json_file, result)


def _write_routes(json_file: Path | None, result: "RouteResult") -> None:
    write_json(json_file, {**asdict(result), "criteria": [asdict(criterion) for criterion in result.criteria]})
