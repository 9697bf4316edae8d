"""Models on the Hugging Face hub, by names such as `hf://owner/name@revision`. No code of a repository is fetched."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from parsecaps.system.extras import require

BUNDLE_FILES = (
    *("config.json", "model.safetensors", "bundle.json", "calibration.json"),
    *("strict.safetensors", "fingerprints.safetensors", "README.md"),
)
_SCHEME = re.compile(r"hf:[/\\]{1,2}")  # a Path has one of the two slashes left
_PART = r"[A-Za-z0-9_](?:[A-Za-z0-9._-]*[A-Za-z0-9_])?"
_REPOSITORY = re.compile(rf"{_PART}/{_PART}")
_REVISION = re.compile(r"[A-Za-z0-9._/-]+")
_LONGEST = 96  # characters of a repository's name on the hub
_LOG_IN = "log in with hf auth login, or set HF_TOKEN"


class HubName(NamedTuple):
    """A repository, as in `owner/name`, and which state of it: a branch, a tag or a commit; None for the newest."""

    repository: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"hf://{self.repository}" + ("" if self.revision is None else f"@{self.revision}")


def is_hub_name(model: str | Path) -> bool:
    """Whether a model is named by its place on the hub; a `Path` of that name counts too.

    >>> is_hub_name("hf://owner/name"), is_hub_name(Path("hf://owner/name")), is_hub_name("runs/cases-1")
    (True, True, False)
    """
    return _SCHEME.match(str(model)) is not None


def parse_hub_name(model: str | Path) -> HubName:
    """The repository and the revision of a name.

    >>> parse_hub_name(Path("hf://owner/name@v1"))
    HubName(repository='owner/name', revision='v1')
    """
    text = _SCHEME.sub("", str(model).replace("\\", "/"))
    repository, at, revision = text.partition("@")
    if not is_repository(repository) or (at and (not _REVISION.fullmatch(revision) or ".." in revision)):
        raise ValueError(f"hf://{text} is not the name of a model on the hub; write hf://owner/name@revision")
    return HubName(repository, revision or None)


def is_repository(text: str) -> bool:
    """Whether a text can be the name of a repository on the hub, with its owner.

    >>> is_repository("owner/name"), is_repository("name"), is_repository("../name")
    (True, False, False)
    """
    allowed = _REPOSITORY.fullmatch(text) is not None and not re.search(r"--|\.\.|\.git$", text)
    return allowed and len(text) <= _LONGEST


def fetch_model(model: str | Path) -> Path:
    """The folder with the files of a model on the hub; what was fetched before is taken from the cache."""
    name = parse_hub_name(model)
    with hub_errors(name):
        from huggingface_hub import snapshot_download

        return Path(snapshot_download(name.repository, revision=name.revision, allow_patterns=list(BUNDLE_FILES)))


# By the error of huggingface_hub, a more special one before its bases: what it is to us, and what to say of a name.
_HUB_ERRORS: dict[str, tuple[type[OSError], str]] = {
    "GatedRepoError": (PermissionError, "is only for people whom its owner let in; ask for access, then {log_in}"),
    "RepositoryNotFoundError": (FileNotFoundError, "is not on the hub, or private; check the name, or {log_in}"),
    "RevisionNotFoundError": (FileNotFoundError, "has no revision {revision!r}; leave the revision out for the newest"),
    "LocalTokenNotFoundError": (PermissionError, "needs to know who you are; {log_in}"),
    "OfflineModeIsEnabled": (OSError, "is on the hub, which HF_HUB_OFFLINE forbids to ask; unset it"),
    "LocalEntryNotFoundError": (
        FileNotFoundError,
        "was not fetched before, and the hub cannot be reached; connect to the network, or give a local folder",
    ),
}


@contextmanager
def hub_errors(name: HubName) -> Iterator[None]:
    """Turn every error of the hub into one line with a remedy."""
    require("huggingface_hub")
    from huggingface_hub import errors

    try:
        yield
    except Exception as error:  # of the HTTP library too, which is another one in each version of huggingface_hub
        for kind, (ours, reason) in _HUB_ERRORS.items():
            if isinstance(error, getattr(errors, kind)):
                raise ours(f"{name} {reason.format(log_in=_LOG_IN, revision=name.revision)}") from None
        if not isinstance(error, errors.HfHubHTTPError):
            said = " ".join(f"{type(error).__name__}: {error}".split())
            raise OSError(f"{name}: the hub cannot be reached ({said[:200]}); connect to the network") from None
        status, said = error.response.status_code, " ".join(str(error.server_message or error).split())
        if status in (401, 403):
            raise PermissionError(f"{name}: the hub does not allow it ({status}); as its owner, {_LOG_IN}") from None
        raise OSError(f"{name}: the hub answered {status} ({said[:200]}); try again later") from None
