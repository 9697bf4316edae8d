"""DICOM objects before others: dciodvfy looks at every kind of them, and Orthanc takes them and gives them back."""

import json
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from io import BytesIO
from pathlib import Path
from typing import Any

import pydicom
import pytest

from parsecaps.data.preparation import Preparation
from parsecaps.data.sources import open_data
from parsecaps.model import Model
from tests.explain.make_explained import DATA, make_model
from tests.export import dicom_studies as studies
from tests.export.dicom_objects import write

LONG = "a name of a class that is much longer than the sixty-four characters of a code meaning"
CONCEPTS = ("[/b] naïve\\Ψ", LONG, "irregular > 3", "黑色素", "x" * 200, "tab\tand\nline", "b")
PLUGINS = [Path(folder) / "libOrthancDicomWeb.so" for folder in ("/usr/share/orthanc/plugins", "/usr/lib/orthanc")]


@pytest.fixture(scope="module")
def model() -> Model:
    return make_model(open_data(DATA), "bottleneck")


@pytest.fixture(scope="module")
def out(model: Model, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The objects of a study of every kind of source."""
    study, out = tmp_path_factory.mktemp("study"), tmp_path_factory.mktemp("out")
    frames, mr = studies.frames_without_place(study / "sc"), studies.enhanced_mr(study / "mr")
    name = "Yamada^Tarou=山田^太郎=やまだ^たろう"
    japanese = {"SpecificCharacterSet": ["", "ISO 2022 IR 87"], "PatientName": name}
    lossy = {"LossyImageCompression": "01", "LossyImageCompressionRatio": 12, "Laterality": "R"}
    lossy["LossyImageCompressionMethod"] = "ISO_10918_1"
    blank = {"PatientName": "", "StudyDate": "", "StudyTime": "", "PatientSex": "", "PatientBirthDate": ""}
    images = (
        studies.slice_of_ct(study / "ct"),
        studies.photograph(study / "skin", **japanese),
        studies.photograph(study / "lossy", **lossy),
        (mr, 0),
        (mr, 2),
        (frames, 1),
        studies.slice_of_ct(study / "blank", 2, (40, 64), **blank, AccessionNumber="", StudyID=""),
        studies.slice_of_ct(study / "latin", 3, SpecificCharacterSet="ISO_IR 100", PatientName="Müller^Jörg"),
    )
    write(model, out, *images)
    return out


def complaints(folder: Path) -> dict[str, str]:
    """What dciodvfy calls an error, by file."""
    if shutil.which("dciodvfy") is None:
        pytest.skip("dciodvfy (Debian dicom3tools) is not installed")
    found = {}
    for path in sorted(folder.glob("*.dcm")):
        done = subprocess.run(["dciodvfy", path], capture_output=True, text=True, check=False)
        said = [line for line in (done.stdout + done.stderr).splitlines() if not line.startswith("Warning")]
        assert said, f"dciodvfy does not say what {path} is"
        if said not in (["ComprehensiveSR"], ["SCImage"], ["ParametricMap"]):
            found[path.name] = "\n".join(said)
    return found


def test_dciodvfy_finds_no_error(out: Path) -> None:
    assert len(list(out.glob("*.dcm"))) == 8 + 8 + 5 * 3
    assert complaints(out) == {}


def test_dciodvfy_finds_no_error_with_names_not_made_for_dicom(tmp_path: Path) -> None:
    model = make_model(open_data(DATA), "parallel")
    preparation = Preparation(32, 3, "crop", "percentile", 0.9)
    odd = Model(model.network, preparation, (LONG, "Mélanome"), CONCEPTS)
    write(odd, tmp_path / "out", studies.slice_of_ct(tmp_path / "ct"), count=7)
    assert len(list((tmp_path / "out").iterdir())) == 10
    assert complaints(tmp_path / "out") == {}
    without = make_model(open_data(DATA), "cnn")
    write(without, tmp_path / "none", studies.slice_of_ct(tmp_path / "ct"))
    assert len(list((tmp_path / "none").iterdir())) == 3
    assert complaints(tmp_path / "none") == {}


def test_dciodvfy_can_find_one(out: Path, tmp_path: Path) -> None:
    data = pydicom.dcmread(next(out.glob("*report*")))
    del data.VerificationFlag
    data.save_as(tmp_path / "bad.dcm")
    assert "VerificationFlag" in complaints(tmp_path)["bad.dcm"]


@pytest.fixture(scope="module")
def orthanc(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the DICOMweb of an Orthanc of our own, with an empty store."""
    program = shutil.which("Orthanc") or shutil.which("/usr/sbin/Orthanc")
    plugin = next((path for path in PLUGINS if path.exists()), None)
    if program is None or plugin is None:
        pytest.skip("Orthanc with DICOMweb (Debian orthanc, orthanc-dicomweb) is not installed")
    folder, port = tmp_path_factory.mktemp("orthanc"), free_port()
    settings = {
        "StorageDirectory": str(folder / "store"),
        "IndexDirectory": str(folder / "store"),
        "HttpPort": port,
        "DicomServerEnabled": False,
        "RemoteAccessAllowed": False,
        "Plugins": [str(plugin)],
        "DicomWeb": {"Enable": True, "Root": "/dicom-web/"},
    }
    (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
    log = (folder / "log").open("wb")
    with closing(log), subprocess.Popen([program, str(folder / "settings.json")], stdout=log, stderr=log) as process:
        try:
            wait_for(f"http://127.0.0.1:{port}/system", process)
            yield f"http://127.0.0.1:{port}/dicom-web"
        finally:
            process.kill()


def free_port() -> int:
    with closing(socket.socket()) as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def wait_for(address: str, process: subprocess.Popen[bytes], seconds: float = 30) -> None:
    end = time.monotonic() + seconds
    while True:
        try:
            ask(address)
            return
        except OSError:
            assert process.poll() is None, "Orthanc has ended"
            assert time.monotonic() < end, "Orthanc does not answer"
            time.sleep(0.1)


def ask(address: str, body: bytes | None = None, **headers: str) -> tuple[str, bytes]:
    """The content type and the content of an answer."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(address, body, {name.replace("_", "-"): text for name, text in headers.items()})
    with opener.open(request, timeout=30) as answer:
        return answer.headers["Content-Type"], answer.read()


def store(address: str, files: list[bytes]) -> Any:
    """STOW-RS: one request with a part for each file."""
    mark = "parsecaps-test"
    parts = [f"--{mark}\r\nContent-Type: application/dicom\r\n\r\n".encode() + file + b"\r\n" for file in files]
    kind = f'multipart/related; type="application/dicom"; boundary={mark}'
    body = b"".join(parts) + f"--{mark}--\r\n".encode()
    return json.loads(ask(f"{address}/studies", body, Content_Type=kind, Accept="application/dicom+json")[1])


def retrieve(address: str, data: Any) -> Any:
    """WADO-RS: one instance, as it is stored."""
    place = f"studies/{data.StudyInstanceUID}/series/{data.SeriesInstanceUID}/instances/{data.SOPInstanceUID}"
    kind, body = ask(f"{address}/{place}", Accept='multipart/related; type="application/dicom"; transfer-syntax=*')
    mark = kind.partition("boundary=")[2].split(";")[0].strip('"').encode()
    (part,) = body.split(b"--" + mark)[1:-1]
    return pydicom.dcmread(BytesIO(part.partition(b"\r\n\r\n")[2].removesuffix(b"\r\n")))


def test_orthanc_takes_the_objects_and_gives_them_back(out: Path, orthanc: str) -> None:
    files = [path.read_bytes() for path in sorted(out.glob("*.dcm"))]
    answer = store(orthanc, files)
    assert len(answer["00081199"]["Value"]) == len(files)  # Referenced SOP Sequence
    assert not answer.get("00081198", {}).get("Value")  # Failed SOP Sequence
    for file in files:
        sent = pydicom.dcmread(BytesIO(file))
        back = retrieve(orthanc, sent)
        assert back == sent
        assert back.file_meta.TransferSyntaxUID == sent.file_meta.TransferSyntaxUID
    found = json.loads(ask(f"{orthanc}/studies/{studies.STUDY}/instances", Accept="application/dicom+json")[1])
    assert len(found) == len(files)
