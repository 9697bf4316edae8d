"""Names that others may import: this test fails when one of them disappears."""

import importlib

import pytest

PUBLIC: dict[str, set[str]] = {
    "parsecaps": {"Config", "cross_validate", "evaluate", "fit", "load", "load_config"},
    "parsecaps.types": {"Batch", "Output"},
    "parsecaps.functional": {
        "class_loss",
        "diversity_loss",
        "entmax",
        "presentation_loss",
        "reconstruction_loss",
        "squash",
        "triplet_loss",
    },
    "parsecaps.nn": {
        "AxialAttention",
        "Bottleneck",
        "CapsuleCell",
        "ConceptLayer",
        "Coupling",
        "Decoder",
        "FullyCaps",
        "InitialBlock",
        "PConvCaps",
        "PhraseEmbedding",
        "PrimaryCaps",
        "SAARouting",
        "SparseAttention",
        "capsule_block",
        "record_couplings",
        "replace_couplings",
    },
    "parsecaps.nn.couplings": {"RecordedCoupling", "strongest", "uniform"},
    "parsecaps.models": {"MODELS", "FlatCaps", "ParseCaps", "PlainCNN", "PretrainedModel", "ResNet18", "load_model"},
    "parsecaps.models.presets": {"PRESETS"},
    "parsecaps.config": {"Config", "EvaluateConfig", "PredictConfig", "load_config", "load_settings"},
    "parsecaps.training": {"Losses", "Objective"},
    "parsecaps.training.fit": {"Listeners", "Run", "fit"},
    "parsecaps.training.run_folder": {"RunFolder"},
    "parsecaps.training.watch": {"DivergedError", "Progress"},
    "parsecaps.data.augment": {"Augmentation"},
    "parsecaps.data.batches": {"Batches"},
    "parsecaps.data.cache": {"BadDataError", "PreparedImages", "prepare_all"},
    "parsecaps.data.cases": {"Case", "DataSet", "Problem"},
    "parsecaps.data.check": {"DataCheck", "check_data"},
    "parsecaps.data.leaks": {"Leak", "find_leaks", "move_to_one_side"},
    "parsecaps.data.masks": {"prepared_masks"},
    "parsecaps.data.phantom": {"case_table", "diagnose", "draw"},
    "parsecaps.data.preparation": {"Preparation"},
    "parsecaps.data.reading": {"RawImage", "read_image", "read_mask"},
    "parsecaps.data.sources": {"SOURCES", "Source", "open_data"},
    "parsecaps.data.splits": {"by_fold", "hold_out", "k_folds", "official", "read_split", "split_hash", "write_split"},
    "parsecaps.audit.bypass": {"explained_by_concepts", "shuffled_concepts"},
    "parsecaps.explain.case_memory": {"CaseMemory", "remember", "remember_run"},
    "parsecaps.explain.counterfactual": {"counterfactual"},
    "parsecaps.discovery.discover": {"discover", "effective_concepts", "mask_overlap", "purity"},
    "parsecaps.explain.intervention": {"ConceptReasoning", "concept_reasoning", "exclusive_groups"},
    "parsecaps.audit.intervention_curve": {"intervention_curve"},
    "parsecaps.audit.leakage": {"leakage"},
    "parsecaps.discovery.naming": {"name_concepts", "read_names", "read_notes"},
    "parsecaps.explain.case_memory": {"prototypes", "similar"},
    "parsecaps.audit.redundancy": {"capsule_similarity"},
    "parsecaps.discovery.stability": {"stability"},
    "parsecaps.metrics.means": {"Means", "means"},
    "parsecaps.audit.audit": {"Audit", "audit"},
    "parsecaps.audit.run": {"audit_model"},
    "parsecaps.audit.faithfulness": {"cover", "measure_curves", "random_curves", "summarise_curves"},
    "parsecaps.audit.localisation": {"join", "localise", "measure_maps"},
    "parsecaps.explain.map_makers": {"map_makers", "routes_of"},
    "parsecaps.audit.masks": {"CaseMasks", "find_masks"},
    "parsecaps.audit.randomisation": {"cascade", "summarise_cascade"},
    "parsecaps.audit.route_ablation": {"cut_routes", "summarise_cuts"},
    "parsecaps.report.audit_page": {"audit_page"},
    "parsecaps.explain.thumbnails": {"read_thumbnails", "write_thumbnails"},
    "parsecaps.explain.traversal": {"explained_variance", "traverse", "usual_ranges"},
    "parsecaps.report.data_page": {"data_page"},
    "parsecaps.report.naming_page": {"naming_page"},
    "parsecaps.pipeline.evaluate_run": {"Evaluation", "evaluate_run"},
    "parsecaps.pipeline.cross_validate": {"CrossValidation", "cross_validate"},
    "parsecaps.pipeline.discover": {"Discovery", "discover_run"},
    "parsecaps.pipeline.fit": {"TrainedRun", "fit"},
    "parsecaps.pipeline.model": {"Model", "Prediction", "load"},
    "parsecaps.pipeline.discover": {"name_run"},
    "parsecaps.report.model_card": {"model_card"},
    "parsecaps.report.scores_page": {"scores_page"},
    "parsecaps.text.finding": {"find_concepts"},
    "parsecaps.text.lexicon": {"Lexicon"},
    "studies.cemri_slices": {"CLASSES", "Slices", "base_patient", "read_slices", "split_by_fold"},
    "parsecaps.data.mnist": {"read_mnist"},
}
METHODS: dict[str, set[str]] = {
    "ParseCaps": {"from_config", "from_preset", "from_pretrained", "save_pretrained", "top_capsules"},
    "FlatCaps": {"from_config", "from_preset", "from_pretrained", "save_pretrained", "top_capsules"},
    "PlainCNN": {"from_config", "from_preset", "from_pretrained", "save_pretrained"},
    "ResNet18": {"from_config", "from_preset", "from_pretrained", "save_pretrained"},
}
PRESETS = {"medical", "digits", "tiny"}
FIELDS: dict[str, tuple[str, ...]] = {
    "Batch": ("image", "label", "concepts"),
    "Output": ("logits", "class_capsules", "concept_capsules", "presence", "global_capsule", "reconstruction"),
}


@pytest.mark.parametrize("module", PUBLIC)
def test_public_names_are_there(module: str) -> None:
    loaded = importlib.import_module(module)
    assert {name for name in PUBLIC[module] if not hasattr(loaded, name)} == set()


@pytest.mark.parametrize("module", [name for name in PUBLIC if hasattr(importlib.import_module(name), "__all__")])
def test_what_a_module_lists_exists_in_order(module: str) -> None:
    loaded = importlib.import_module(module)
    assert [name for name in loaded.__all__ if not hasattr(loaded, name)] == []
    assert len(set(loaded.__all__)) == len(loaded.__all__)
    assert set(loaded.__all__) >= PUBLIC[module]


@pytest.mark.parametrize("kind", METHODS)
def test_methods_and_presets(kind: str) -> None:
    models = importlib.import_module("parsecaps.models")
    assert {name for name in METHODS[kind] if not hasattr(getattr(models, kind), name)} == set()
    assert models.ParseCaps.presets.keys() >= PRESETS


@pytest.mark.parametrize("kind", FIELDS)
def test_fields_keep_their_order(kind: str) -> None:
    """A tuple is also read by position."""
    fields = getattr(importlib.import_module("parsecaps.types"), kind)._fields
    assert fields[: len(FIELDS[kind])] == FIELDS[kind]
