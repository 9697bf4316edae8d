"""`parsecaps predict`: a trained model over files."""

from pathlib import Path
from typing import Annotated, Any

from parsecaps.cli.command import Given, ModelFolder, argument, command, option
from parsecaps.cli.output import check_writable, display
from parsecaps.cli.progress import free_threads, showing_stages
from parsecaps.config import PredictConfig


@command(PredictConfig, "risk", "device")
def predict(
    model: ModelFolder,
    inputs: Annotated[list[str], argument("FILES", "Images, DICOM files, folders, or manifests.")],
    out: Annotated[Path, option("FILE", "A .csv or .jsonl file; what it has already is kept.")],
    given: Given[PredictConfig],
    patients: Annotated[Path | None, option("FILE", "A .csv file with one row for each patient, too.")] = None,
) -> dict[str, Any] | None:
    """Predict the class and the concepts of image files, one row for each.

    After an interruption the same command goes on where it stopped. A file that cannot be read becomes a row with an
    error; files in a folder that are not images are counted at the end. With `--risk`, each row has the set of classes
    that cannot be ruled out (calibrated on the validation patients), and abstains unless that is a single one. With
    `--patients`, images of one patient, by a manifest or their DICOM files, get the class with the highest mean
    probability too; frames of one file belong together.

    For a large archive, `torchrun` starts several processes, on one machine or more that share the folders. Each takes
    a part of the files, and the last one writes the table.

    **Examples**

    - `parsecaps predict runs/cases-1 image.png --out answer.csv`
    - `parsecaps predict runs/cases-1 archive/ --out answers.jsonl --risk 0.1`
    - `parsecaps predict runs/cases-1 archive/ --out answers.csv --patients patients.csv`
    - `parsecaps predict runs/cases-1 archive/ --out answers.csv --set batch_size=128`
    - `torchrun --standalone --nproc-per-node 4 -m parsecaps predict runs/cases-1 archive/ --out answers.csv`
    """
    for path in (out, patients):
        check_writable(path)
    if patients is not None and (patients.suffix != ".csv" or patients == out):
        raise ValueError(f"--patients is {patients}; give a .csv file of its own")
    from parsecaps.model import Model, use_gpu
    from parsecaps.prediction.archive import lock_file, write_part, write_patients, write_rows
    from parsecaps.prediction.files import LeftOut, Shard, find_files
    from parsecaps.system.processes import find_processes, meet

    chosen = given.load()
    processes = find_processes(1)
    use_gpu(processes.rank % processes.here)
    loaded = Model.load(model, chosen.device)
    calibration = loaded.calibration
    notes = [calibration.note] if calibration.note else []
    if chosen.risk is not None and (note := calibration.threshold(chosen.risk).note):
        notes.append(note)
    own = [path for path in (out, lock_file(out), patients, given.json_file) if path is not None]
    left_out = LeftOut(own)
    # several processes share this machine's cores, and the first one speaks for all
    with free_threads(processes.here), showing_stages(visible=processes.is_main) as progress:

        def show(done: int, failed: int) -> None:
            progress("predicting", done, None, f"{done:,} images, {failed:,} errors")

        how: dict[str, Any] = {"risk": chosen.risk, "batch_size": chosen.batch_size, "progress": show}
        try:
            if processes.count > 1:
                shard = Shard(processes.rank, processes.count)
                merged = write_part(out, loaded, inputs, shard, own=own, meet=meet, **how)
                if merged is None:  # another process is still at work, and will say what was done
                    return None
                done, failed, left_out = merged
            else:
                done, failed = write_rows(out, loaded, find_files(inputs, left_out), **how)
        except KeyboardInterrupt as stopped:
            kept = out if processes.count == 1 else f"{out}.part-*"
            raise type(stopped)(f"stopped; {kept} keeps its rows, and the same command goes on with the rest") from None
    display(*notes, stderr=True)
    rows = "1 new row" if done == 1 else f"{done:,} new rows"
    display(f"{out}: {rows}, {failed:,} with an error", *([left_out.sentence()] if left_out.count else []))
    if patients is not None:
        display(f"{patients}: {write_patients(patients, out):,} patients")
    counts = {"rows": done, "errors": failed, "left_out": {"count": left_out.count, "names": left_out.names}}
    return {**counts, "temperature": calibration.temperature, "notes": notes}
