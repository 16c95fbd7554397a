# SPDX-License-Identifier: Apache-2.0
# mypy: disallow-untyped-calls=False, disallow-subclassing-any=False
"""HKT models for Hugging Face's transformers: import hkt.hf, and its Auto classes and pipelines load them.

The folders are those that `hkt export --hf` and `save_pretrained` write.
"""

import copy
import dataclasses
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    GenerationMixin,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.cache_utils import Cache, CacheLayerMixin
from transformers.modeling_outputs import CausalLMOutputWithPast, SequenceClassifierOutput

from hkt.cache import DecodingState
from hkt.config import (
    Convolution,
    ConvolutionOn,
    Filter,
    FilterOn,
    Kind,
    LevelWeights,
    Mask,
    ModelConfig,
    Pooling,
    Positions,
    Projections,
    Psd,
)
from hkt.hf_tokenizer import HktTokenizer
from hkt.nn import Classifier, LanguageModel, create_model

__all__ = ["HktCache", "HktConfig", "HktForCausalLM", "HktForSequenceClassification", "HktTokenizer"]

_IGNORED = -100  # a label that does not count
_LEAST_ROOM = 512  # tokens for which a cache has room that was not told how many will come

# Keys of ModelConfig that HktConfig has under other names or for one kind of model, and those of attention that Python does not have.
_APART = ("kind", "max_length", "tied", "pooling", "classes")
_ABSENT = ("attention", "window", "globals", "random_keys", "features", "block_size")
# Those that HktConfig has under the same names and for both kinds of models.
_SHARED = [field.name for field in dataclasses.fields(ModelConfig) if field.name not in _APART + _ABSENT]


class HktConfig(PreTrainedConfig):
    """A ModelConfig as transformers writes it: max_length is called max_position_embeddings, tied tie_word_embeddings, and classes
    num_labels; the model's class stands for kind. All other keys, their defaults and what they may be are those of ModelConfig.

    >>> config = HktConfig(width=64, heads=2, mask="causal", positions="rotary")
    >>> config.hidden_size, config.model_config("language").head_width
    (64, 32)
    >>> HktConfig(width=10)
    Traceback (most recent call last):
        ...
    ValueError: model.width is 10; it must be a multiple of model.heads, 4.
    """

    model_type: ClassVar[str] = "hkt"
    keys_to_ignore_at_inference: ClassVar[list[str]] = ["past_key_values"]
    attribute_map: ClassVar[dict[str, str]] = {
        "hidden_size": "width",
        "intermediate_size": "feedforward",
        "num_attention_heads": "heads",
        "num_hidden_layers": "blocks",
        "vocab_size": "vocab",
    }

    levels: int = ModelConfig.levels
    heads: int = ModelConfig.heads
    key_heads: int = ModelConfig.key_heads
    width: int = ModelConfig.width
    blocks: int = ModelConfig.blocks
    feedforward: int = ModelConfig.feedforward
    filter: Filter = ModelConfig.filter
    kernel_size: int = ModelConfig.kernel_size
    filter_on: FilterOn = ModelConfig.filter_on
    short_convolution: Convolution = ModelConfig.short_convolution
    convolution_taps: int = ModelConfig.convolution_taps
    convolution_on: ConvolutionOn = ModelConfig.convolution_on
    projections: Projections = ModelConfig.projections
    weights: LevelWeights = ModelConfig.weights
    positions: Positions = ModelConfig.positions
    position_scale: float = ModelConfig.position_scale
    mask: Mask = ModelConfig.mask
    psd: Psd = ModelConfig.psd
    biases: bool = ModelConfig.biases
    dropout: float = ModelConfig.dropout
    vocab: int = ModelConfig.vocab
    max_position_embeddings: int = ModelConfig.max_length
    pooling: Pooling = ModelConfig.pooling
    tie_word_embeddings: bool = ModelConfig.tied

    def __post_init__(self, **options: Any) -> None:
        super().__post_init__(**options)
        self.model_config("classifier")  # the kind that allows all values

    def model_config(self, kind: Kind) -> ModelConfig:
        """That of the module in hkt.nn; a value out of range raises a ValueError."""
        values = {name: getattr(self, name) for name in _SHARED} | {"max_length": self.max_position_embeddings}
        if kind == "language":
            return ModelConfig(kind=kind, tied=self.tie_word_embeddings, **values)
        return ModelConfig(kind=kind, pooling=self.pooling, classes=self.num_labels or 0, **values)


class _Padding:
    """The padding of a batch, on either side of its rows, from an attention mask [B, T].

    The coarse grid begins at a sequence's first token, and padding must not reach the filters. So rows are rolled until their first
    token is at position 0 and all padding on the right; what the model says of them is rolled back.
    """

    def __init__(self, mask: Tensor) -> None:
        self.valid = mask == 1
        self.lengths = self.valid.sum(1)
        self._starts = self.valid.int().argmax(1)
        self._check(mask)

    def _check(self, mask: Tensor) -> None:
        places = torch.arange(mask.size(1), device=mask.device) - self._starts[:, None]
        right = ((self.valid == ((places >= 0) & (places < self.lengths[:, None]))) & (self.valid | (mask == 0))).all()
        problem = "attention_mask must be 1 for the tokens of a row, without gaps, and 0 for padding before or after them."
        if torch.compiler.is_compiling():
            torch._assert_async(right, problem)
        elif not bool(right):
            raise ValueError(problem)

    def _rolled(self, x: Tensor, by: Tensor) -> Tensor:
        index = (torch.arange(x.size(1), device=x.device) + by[:, None]) % x.size(1)
        return x.gather(1, index.view(*index.shape, *[1] * (x.dim() - 2)).expand_as(x))

    def moved_right(self, tokens: Tensor) -> Tensor:
        return self._rolled(tokens, self._starts)

    def moved_back(self, x: Tensor) -> Tensor:
        return self._rolled(x, -self._starts)


def _left_padded(mask: Tensor) -> list[int] | None:
    """How many of the last tokens of each row count, None if all do."""
    if bool((mask == 1).all()):
        return None
    padding = _Padding(mask)
    if not bool((padding.valid[:, -1] | (padding.lengths == 0)).all()):
        raise ValueError('attention_mask has padding after tokens; to generate, pad on the left (padding_side="left").')
    return [int(length) for length in padding.lengths.tolist()]


def _refuse(model: nn.Module, **arguments: Any) -> None:
    """What transformers' own models can be asked for, and these cannot."""
    for name, value in arguments.items():
        if value is not None and value is not False:
            raise ValueError(f"{name} is given; {type(model).__name__} takes input_ids and returns logits.")


def _check_inputs(input_ids: Tensor | None, attention_mask: Tensor | None, past: int = 0) -> Tensor:
    """The tokens."""
    if input_ids is None or input_ids.dim() != 2:
        raise ValueError(f"input_ids is {None if input_ids is None else list(input_ids.shape)}; it must be [batch, length].")
    batch, length = input_ids.shape
    if attention_mask is not None and tuple(attention_mask.shape) not in ((batch, length), (batch, past + length)):
        raise ValueError(f"attention_mask has shape {list(attention_mask.shape)}; it must be {[batch, past + length]}.")
    return input_ids.long()


class _HktModel(PreTrainedModel):
    """What both models share: the module of hkt.nn is their attribute `model`."""

    config_class = HktConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    config: HktConfig
    model: Classifier | LanguageModel
    _no_split_modules = ["Block"]
    _input_embed_layer = "embedding"

    @property
    def gradient_checkpointing(self) -> bool:
        """Whether training computes the blocks a second time in the backward pass instead of keeping all that they compute."""
        return self.model.checkpoints

    @gradient_checkpointing.setter
    def gradient_checkpointing(self, value: bool) -> None:
        self.model.checkpoints = value

    def init_weights(self) -> None:
        """hkt.nn has drawn them."""

    @torch.no_grad()
    def initialize_weights(self) -> None:
        """Weights that a checkpoint lacks start as those of a new model."""
        lacking = [(name, own) for name, own in self.model.named_parameters() if not getattr(own, "_is_hf_initialized", False)]
        if not lacking:
            return
        new = dict(create_model(self.model.config, device="cpu").named_parameters())
        for name, own in lacking:
            own.copy_(new[name])

    def resize_token_embeddings(
        self, new_num_tokens: int | None = None, pad_to_multiple_of: int | None = None, mean_resizing: bool = True
    ) -> nn.Embedding:
        embedding = super().resize_token_embeddings(new_num_tokens, pad_to_multiple_of, mean_resizing)
        self.model.config = dataclasses.replace(self.model.config, vocab=self.config.vocab)
        return embedding


class HktForSequenceClassification(_HktModel):
    """A hkt.nn.Classifier, `model`, as transformers calls it.

    >>> model = HktForSequenceClassification(HktConfig(width=32, num_labels=3)).eval()
    >>> model(torch.randint(256, (4, 20))).logits.shape
    torch.Size([4, 3])
    """

    model: Classifier

    def __init__(self, config: HktConfig) -> None:
        super().__init__(config)
        self.num_labels = config.num_labels
        self.model = Classifier(config.model_config("classifier"))
        self.post_init()

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> SequenceClassifierOutput | tuple[Any, ...]:
        """input_ids, attention_mask: [B, T], with padding on either side; labels: [B] (see problem_type of the config)."""
        _refuse(self, inputs_embeds=inputs_embeds, output_attentions=output_attentions, output_hidden_states=output_hidden_states)
        tokens = _check_inputs(input_ids, attention_mask)
        if attention_mask is None:
            logits = self.model(tokens)
        else:
            padding = _Padding(attention_mask)
            logits = self.model(padding.moved_right(tokens), padding.lengths)
        loss = None
        if labels is not None:
            loss = self.loss_function(labels=labels, pooled_logits=logits, config=self.config)
        output = SequenceClassifierOutput(loss=loss, logits=logits)
        return output if _returns_dict(self.config, return_dict) else output.to_tuple()


class HktForCausalLM(_HktModel, GenerationMixin):
    """A hkt.nn.LanguageModel, `model`, as transformers calls it, with generate().

    >>> model = HktForCausalLM(HktConfig(width=32, mask="causal", positions="rotary")).eval()
    >>> tokens = torch.randint(256, (2, 10))
    >>> model(tokens, labels=tokens).logits.shape
    torch.Size([2, 10, 256])
    >>> padded = torch.ones_like(tokens)
    >>> padded[0, :4] = 0
    >>> longer = model.generate(tokens, attention_mask=padded, max_new_tokens=5, do_sample=False)
    >>> torch.equal(longer[:1, 4:], model.generate(tokens[:1, 4:], max_new_tokens=5, do_sample=False))
    True
    """

    accepts_loss_kwargs = True  # Trainer tells how many labels all the batches of a step have
    model: LanguageModel

    def __init__(self, config: HktConfig) -> None:
        super().__init__(config)
        self.model = LanguageModel(config.model_config("language"))
        self.post_init()

    def get_output_embeddings(self) -> nn.Linear | None:
        """None where the head uses the embedding's weights."""
        return self.model.head

    def set_output_embeddings(self, new_embeddings: nn.Linear) -> None:
        self.model.head = new_embeddings

    def forward(
        self,
        input_ids: Tensor | None = None,
        attention_mask: Tensor | None = None,
        past_key_values: Cache | None = None,
        inputs_embeds: Tensor | None = None,
        labels: Tensor | None = None,
        use_cache: bool | None = None,
        logits_to_keep: int | Tensor = 0,
        num_items_in_batch: Tensor | int | None = None,
        output_attentions: bool | None = None,
        output_hidden_states: bool | None = None,
        return_dict: bool | None = None,
    ) -> CausalLMOutputWithPast | tuple[Any, ...]:
        """input_ids: [B, T]; attention_mask: [B, T], with padding on either side, whose logits mean nothing.

        past_key_values: a HktCache of earlier tokens, to which these are added. attention_mask may then count the earlier ones, too,
            and nothing has a gradient. use_cache: begin with an empty one.
        labels: [B, T], usually input_ids, −100 where they do not count; what follows padding never does.
        logits_to_keep: of the last so many tokens, of all (0), or of those that a tensor of indices names.
        """
        _refuse(self, inputs_embeds=inputs_embeds, output_attentions=output_attentions, output_hidden_states=output_hidden_states)
        cache = HktCache(self) if past_key_values is None and use_cache else past_key_values
        if cache is not None:
            output = self._cached(input_ids, attention_mask, cache, labels, logits_to_keep)
        else:
            output = self._uncached(input_ids, attention_mask, labels, logits_to_keep, num_items_in_batch)
        return output if _returns_dict(self.config, return_dict) else output.to_tuple()

    def _uncached(
        self,
        input_ids: Tensor | None,
        attention_mask: Tensor | None,
        labels: Tensor | None,
        keep: int | Tensor,
        count: Tensor | int | None,
    ) -> CausalLMOutputWithPast:
        tokens = _check_inputs(input_ids, attention_mask)
        if attention_mask is None:
            hidden = self.model.hidden(tokens)
        else:
            padding = _Padding(attention_mask)
            hidden = padding.moved_back(self.model.hidden(padding.moved_right(tokens), padding.lengths))
            if labels is not None:
                follows = F.pad(padding.valid[:, :-1], (1, 0))
                labels = labels.masked_fill(~follows, _IGNORED)
        if labels is None:
            return CausalLMOutputWithPast(logits=self.model.logits(_kept(hidden, keep)))
        logits = self.model.logits(hidden)
        loss = self.loss_function(logits=logits, labels=labels, vocab_size=self.config.vocab, num_items_in_batch=count)
        return CausalLMOutputWithPast(loss=loss, logits=_kept(logits, keep))

    @torch.no_grad()
    def _cached(
        self, input_ids: Tensor | None, attention_mask: Tensor | None, cache: Cache, labels: Tensor | None, keep: int | Tensor
    ) -> CausalLMOutputWithPast:
        if not isinstance(cache, HktCache):
            raise TypeError(f"past_key_values is a {type(cache).__name__}; {type(self).__name__} needs a hkt.hf.HktCache.")
        if labels is not None:
            raise ValueError("labels are given with a cache, which has no gradients; leave out past_key_values and use_cache.")
        tokens = _check_inputs(input_ids, attention_mask, cache.get_seq_length())
        counts = None if attention_mask is None else _left_padded(attention_mask[:, -tokens.size(1) :])
        hidden = cache.state.extend(tokens, counts)
        return CausalLMOutputWithPast(logits=self.model.logits(_kept(hidden, keep)), past_key_values=cache)

    @classmethod
    def _supports_default_dynamic_cache(cls) -> bool:
        """A DynamicCache has one set of keys for each layer."""
        return False

    def _prepare_cache_for_generation(
        self, generation_config: Any, model_kwargs: dict[str, Any], generation_mode: Any, batch_size: int, max_cache_length: int
    ) -> Any:
        parent: Any = super()
        parent._prepare_cache_for_generation(generation_config, model_kwargs, generation_mode, batch_size, max_cache_length)
        tokens = max_cache_length - self._least_padding(model_kwargs.get("attention_mask"))
        limit = self.model.config.max_length
        if tokens > limit:
            raise ValueError(
                f"the longest prompt and its new tokens, all but the last, are {tokens}; this model takes at most {limit} "
                "(max_position_embeddings)."
            )
        if model_kwargs.get("past_key_values") is not None or generation_config.use_cache is False:
            return
        cache = HktCache(self, capacity=tokens)
        if generation_config.is_assistant:  # its drafts are taken back
            cache.activate_past_recording()
        model_kwargs["past_key_values"] = cache

    @staticmethod
    def _least_padding(attention_mask: Tensor | None) -> int:
        if attention_mask is None:
            return 0
        for row, empty in enumerate((attention_mask == 0).all(1).tolist()):
            if empty:
                raise ValueError(f"prompt {row} has no tokens; to generate it needs at least one, such as the bos_token.")
        return int((attention_mask == 0).sum(1).min())


def _returns_dict(config: HktConfig, return_dict: bool | None) -> bool:
    return bool(config.return_dict if return_dict is None else return_dict)


def _kept(rows: Tensor, keep: int | Tensor) -> Tensor:
    """Of rows [B, T, n] those that logits_to_keep names."""
    return rows[:, slice(-keep, None) if isinstance(keep, int) else keep]


class _State(CacheLayerMixin):
    """The decoding state of all layers, in the form of a layer's cache. Its length counts padding on the left, too."""

    is_sliding = False
    supports_early_init = False

    def __init__(self, model: LanguageModel, capacity: int | None) -> None:
        super().__init__()
        self.model, self.capacity = model, capacity
        self.columns = 0
        self.is_croppable = False
        self.decoding: DecodingState | None = None  # there is none until the size of the batch is known

    def __deepcopy__(self, memo: dict[int, Any]) -> "_State":
        memo[id(self.model)] = self.model  # copies of a cache share its model
        other = copy.copy(self)
        other.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return other

    def extend(self, tokens: Tensor, counts: list[int] | None) -> Tensor:
        """Appends tokens [B, n], of which the last counts[b] are real; returns the output of the last block, [B, n, width]."""
        batch, length = tokens.shape
        decoding = self._with_room(batch, length if counts is None else max(counts))
        if decoding.batch != batch:
            raise ValueError(f"input_ids has {batch} rows; past_key_values has {decoding.batch}.")
        hidden = decoding.hidden(tokens, counts)
        self.columns += length
        return hidden

    def _with_room(self, batch: int, more: int) -> DecodingState:
        limit = self.model.config.max_length
        if self.decoding is None:
            capacity = max(more, min(limit, self.capacity or _LEAST_ROOM))
            take_back = capacity if self.is_croppable else 0
            self.decoding = DecodingState(self.model, batch, capacity, take_back=take_back)
            self.is_initialized = True
        needed = max(self.decoding.lengths) + more
        if needed > self.decoding.capacity:
            self.decoding.reserve(max(needed, min(limit, 2 * self.decoding.capacity)))
        return self.decoding

    def activate_past_recording(self) -> None:
        """From an empty cache on, keeps what crop() needs."""
        if self.decoding is None:
            self.is_croppable = True

    def crop(self, tokens_to_remove: int) -> None:
        if tokens_to_remove > 0:
            raise ValueError(f"tokens_to_remove is {tokens_to_remove}; it must be negative to remove so many tokens, or 0.")
        if self.decoding is not None and tokens_to_remove < 0:
            self.decoding.truncate([length + tokens_to_remove for length in self.decoding.lengths])
            self.columns += tokens_to_remove

    def reorder_cache(self, beam_idx: Tensor) -> None:
        if self.decoding is not None:
            self.decoding.reorder(beam_idx.tolist())

    def batch_repeat_interleave(self, repeats: int) -> None:
        if self.decoding is not None:
            self.decoding.reorder([row for row in range(self.decoding.batch) for _ in range(repeats)])

    def batch_select_indices(self, indices: Tensor) -> None:
        if self.decoding is not None:
            self.decoding.reorder(torch.arange(self.decoding.batch)[indices.cpu()].tolist())

    def reset(self) -> None:
        if self.decoding is not None:
            self.decoding.clear()
        self.columns = 0

    def get_seq_length(self) -> int:
        return self.columns

    def get_max_length(self) -> int:
        return self.model.config.max_length

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.columns + query_length, 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        raise NotImplementedError("a HktCache takes tokens, not keys and values.")

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        raise NotImplementedError("a HktCache takes tokens, not keys and values.")


class HktCache(Cache):
    """What HktForCausalLM keeps of earlier tokens; generate() makes one by itself.

    capacity: the tokens for which there is room at first; it grows.
    crop: whether crop() will be called, which needs more memory.

    >>> model = HktForCausalLM(HktConfig(width=32, mask="causal", positions="rotary")).eval()
    >>> tokens = torch.randint(256, (1, 10))
    >>> cache = HktCache(model, crop=True)
    >>> first = model(tokens[:, :8], past_key_values=cache)
    >>> cache.crop(-2)
    >>> cache.get_seq_length()
    6
    >>> torch.allclose(model(tokens[:, 6:], past_key_values=cache).logits, model(tokens).logits[:, 6:], atol=1e-5)
    True
    """

    def __init__(self, model: HktForCausalLM, capacity: int | None = None, *, crop: bool = False) -> None:
        self.state = _State(model.model, capacity)
        super().__init__(layers=[self.state])
        if crop:
            self.activate_past_recording()


AutoConfig.register(HktConfig.model_type, HktConfig, exist_ok=True)
AutoModelForCausalLM.register(HktConfig, HktForCausalLM, exist_ok=True)
AutoModelForSequenceClassification.register(HktConfig, HktForSequenceClassification, exist_ok=True)
AutoTokenizer.register(HktConfig, tokenizer_class=HktTokenizer, exist_ok=True)
