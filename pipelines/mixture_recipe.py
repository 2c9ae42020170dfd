"""The `dataset:` block of Omnilingual ASR's training recipes, as loaders of this project.

    recipe = pipelines.speech_recipe("config.yaml")
    loader = recipe.train("/data/all_asr/version=0", tokenizer="tokens.model")
    for batch in loader: ...
    recipe.valid("/data/all_asr/version=0", tokenizer="tokens.model")
"""
from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from asdstore.errors import DependencyError, InputError, MissingError
from pipelines.mixture_buckets import Buckets
from pipelines.mixture_loader import SpeechLoader, evaluate_speech, mixture
from pipelines.sections import read_section
from pipelines.spec_augment import SpecAugment
from pipelines.speech_corpus import Utterances, open_speech

_LARGEST = 1 << 20  # bytes of a recipe


class Storage(NamedTuple):
    """`mixture_parquet_storage_config:`. The last four are taken and change nothing here."""

    dataset_summary_path: str | None = None
    beta_corpus: float | None = None
    beta_language: float | None = None
    fragment_loading: Any = None
    fragment_streaming: Any = None
    sync_mode: Any = None
    sync_batches: Any = None


class Task(NamedTuple):
    """`asr_task_config:`, with the original's defaults. The last five are taken and change nothing here: blocks mix what they
    draw, and threads are the loader's."""

    min_audio_len: int = 1
    max_audio_len: int = 800_000
    max_num_elements: int = 3_200_000
    num_seqs_multiple_of: int = 8
    max_bucket_size: int | None = None
    drop_remainder: bool = False
    filter_long_text_threshold: int | None = None
    remove_unknown: bool = False
    min_samples_per_char: int = 160
    normalize_audio: bool = False
    use_fbank: bool = False
    spec_aug_p: float | None = None
    spec_aug_freq_mask_param: int = 80
    spec_aug_time_mask_param: int = 80
    seed: int = 2
    no_padding: bool = False
    batching_strategy: str = "length"
    example_shuffle_window: int = 0
    batch_shuffle_window: int = 1000
    npc: int = 10
    num_prefetch: int = 4
    unified_audio_feature_keys: bool = True


class Dataset(NamedTuple):
    """`dataset:`. Made by `speech_recipe`; `train` and `valid` give loaders."""

    name: str = ""
    train_split: str = "train"
    valid_split: str = "dev"
    storage_mode: str = "MIXTURE_PARQUET"
    task_mode: str = "ASR"
    mixture_parquet_storage_config: Any = Storage()
    asr_task_config: Any = Task()

    def train(self, data: Any, *, tokenizer: Any = None, compat: str | None = None, **settings: Any) -> SpeechLoader:
        """`pipelines.mixture` of a set or packs as the recipe says. `settings` are further ones of `mixture`, which win.

        compat="omnilingual" makes the original's batches; otherwise the planner's, in the same budget. Raises: as `mixture`.
        """
        storage, task = self.mixture_parquet_storage_config, self.asr_task_config
        utterances = open_speech(data)
        split, corpora = _split(self.train_split, utterances)
        said: dict[str, Any] = {**self._reading(tokenizer), "corpora": corpora, "summary": storage.dataset_summary_path,
                                "min_audio_len": task.min_audio_len, "max_audio_len": task.max_audio_len,
                                "min_samples_per_char": task.min_samples_per_char, "seed": task.seed,
                                "max_tokens": task.filter_long_text_threshold, "spec_augment": _masks(task), "compat": compat}
        if storage.dataset_summary_path is None:  # the original does not mix then: all utterances alike
            said |= {"beta_corpus": 1.0, "beta_language": 1.0, "unit": "hours"}
        else:
            said |= {"beta_corpus": storage.beta_corpus, "beta_language": storage.beta_language}
        if self.task_mode == "SSL":
            said |= {"keep_empty": True, "min_samples_per_char": 0}
        if compat == "omnilingual":
            said["buckets"] = Buckets(1, 1, task.max_num_elements, task.num_seqs_multiple_of, task.drop_remainder,
                                      task.max_bucket_size)
        said |= settings
        return mixture(utterances.parts, split, **said)

    def valid(self, data: Any, *, tokenizer: Any = None, **settings: Any) -> SpeechLoader:
        """`pipelines.evaluate` of the validation split. Raises: as `evaluate`."""
        utterances = open_speech(data)
        split, corpora = _split(self.valid_split, utterances)
        said: dict[str, Any] = {**self._reading(tokenizer), "corpora": corpora, **settings}
        return evaluate_speech(utterances.parts, split, **said)

    def _reading(self, tokenizer: Any) -> dict[str, Any]:
        task = self.asr_task_config
        if self.task_mode == "SSL":
            tokenizer = None
        elif tokenizer is None:
            raise InputError("tokenizer", file="dataset", expected="a tokenizer for task_mode ASR", found="None")
        layer = task.normalize_audio or task.use_fbank
        return {"tokenizer": tokenizer, "features": "log_mel" if task.use_fbank else "waveform",
                "normalize": "layer" if layer else "scale", "remove_unknown": task.remove_unknown,
                "sample_budget": task.max_num_elements}


def speech_recipe(recipe: str | os.PathLike[str] | Mapping[str, Any]) -> Dataset:
    """The `dataset:` block of a recipe: a YAML file, or what one holds; the block alone will do too.

    Other blocks (model, optimizer, trainer, ...) are not looked at.

    Raises: InputError "config" for an unknown key of the block, with what was probably meant, a value of another type, a mode
    that is not here, or one beta without the other; "yaml"; MissingError "missing"; DependencyError without PyYAML.
    """
    given = recipe if isinstance(recipe, Mapping) else _yaml(Path(recipe))
    where = "dataset" if isinstance(recipe, Mapping) else f"{os.fspath(recipe)}: dataset"
    block = given["dataset"] if isinstance(given, Mapping) and "dataset" in given else given
    found: Dataset = read_section(Dataset, block, where)
    storage = read_section(Storage, _mapping(found.mixture_parquet_storage_config), f"{where}.mixture_parquet_storage_config")
    task = read_section(Task, _mapping(found.asr_task_config), f"{where}.asr_task_config")
    for key, known in (("storage_mode", ("MIXTURE_PARQUET",)), ("task_mode", ("ASR", "SSL"))):
        if getattr(found, key) not in known:
            raise InputError("config", file=f"{where}.{key}", expected=" or ".join(known), found=getattr(found, key))
    if storage.dataset_summary_path is not None and None in (storage.beta_corpus, storage.beta_language):
        raise InputError("config", file=f"{where}.mixture_parquet_storage_config", expected="beta_corpus and beta_language "
                         "beside dataset_summary_path", found=f"{storage.beta_corpus} and {storage.beta_language}")
    if task.no_padding:
        raise InputError("config", file=f"{where}.asr_task_config", expected="no_padding: false, for batches are padded",
                         found="true")
    if task.batching_strategy.lower() != "length":
        raise InputError("config", file=f"{where}.asr_task_config", expected="batching_strategy: length",
                         found=task.batching_strategy)
    return found._replace(mixture_parquet_storage_config=storage, asr_task_config=task)


def asset_data(card: str | os.PathLike[str]) -> str:
    """Where the data lie, as an asset card says (`dataset_config: data: ...`). Raises: as `speech_recipe`."""
    given = _yaml(Path(card))
    config = given.get("dataset_config") if isinstance(given, Mapping) else None
    data = config.get("data") if isinstance(config, Mapping) else None
    if not isinstance(data, str):
        raise InputError("config", file=card, expected="dataset_config with data, a path", found=repr(given)[:100])
    return data


def _mapping(section: Any) -> Any:
    """A section as a mapping: empty where the file leaves it empty."""
    return section._asdict() if isinstance(section, (Storage, Task)) else {} if section is None else section


def _masks(task: Task) -> SpecAugment | None:
    if task.spec_aug_p is None:
        return None
    most = task.spec_aug_freq_mask_param
    widths = None if most == Task().spec_aug_freq_mask_param else (min(20, most), most)  # 80 bins are all bands of log-mel
    return SpecAugment(task.spec_aug_p, widths, task.spec_aug_time_mask_param)


def _split(name: str, utterances: Utterances) -> tuple[str, list[str] | None]:
    """The split and corpora that a name such as "dev_mls" stands for; a split of just that name comes first."""
    split, _, corpus = name.partition("_")
    if name in utterances.split.names or corpus not in utterances.corpus.names:
        return name, None
    return split, [corpus]


def _yaml(path: Path) -> Any:
    try:
        import yaml
    except ImportError as why:
        raise DependencyError("dependency", expected="the package PyYAML", found=str(why),
                              cure="pip install 'asdstore[speech]'") from why
    try:
        with path.open("rb") as file:
            text = file.read(_LARGEST + 1)
    except OSError as why:
        raise MissingError("missing", file=path, expected="a YAML file", found=why.strerror or str(why)) from why
    if len(text) > _LARGEST:
        raise InputError("yaml", file=path, expected=f"at most {_LARGEST} bytes", found="more")
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError, ValueError) as why:
        raise InputError("yaml", file=path, expected="YAML of plain values", found=str(why).replace("\n", " ")[:200]) from why
