"""The one line for someone who has parsecaps without what reading texts needs."""


def missing(package: str) -> ModuleNotFoundError:
    """The error to raise where a package of the extra `text` is missing.

    >>> str(missing("spacy"))
    "spacy is not installed; run pip install 'parsecaps[text]'"
    """
    return ModuleNotFoundError(f"{package} is not installed; run pip install 'parsecaps[text]'", name=package)
