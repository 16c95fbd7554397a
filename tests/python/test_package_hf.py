# SPDX-License-Identifier: Apache-2.0
# hkt.hf: models of hkt as models of transformers. What transformers does to a model (padding on the left, caches that are reordered
# and cropped, checkpoints, Trainer) must give the numbers of hkt.nn.
import copy
import doctest
import json
from pathlib import Path

import program
import pytest
import torch
import torch.nn.functional as F

import hkt

pytest.importorskip("transformers")
import transformers  # noqa: E402
from transformers import (  # noqa: E402
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    DataCollatorWithPadding,
    DynamicCache,
    Trainer,
    TrainingArguments,
    pipeline,
)

import hkt.hf  # noqa: E402
from hkt.hf import HktCache, HktConfig, HktForCausalLM, HktForSequenceClassification, HktTokenizer  # noqa: E402

transformers.logging.disable_progress_bar()
models = Path(__file__).parents[2] / "models"
ignored = -100
small = {"heads": 2, "width": 16, "feedforward": 32, "blocks": 2, "dropout": 0.0, "vocab": 64, "max_position_embeddings": 64}
variants = {
    "rotary": {"positions": "rotary", "filter": "depthwise", "kernel_size": 4, "short_convolution": "depthwise", "key_heads": 1},
    "learned": {"positions": "learned", "levels": 4, "biases": False, "tie_word_embeddings": True},
    "cone": {"psd": "cone", "projections": "per_level", "weights": "uniform"},
    "projected": {"positions": "none", "filter": "mean", "filter_on": "projected", "short_convolution": "dense", "convolution_on": "qkv"},
}


def drawn_anew(model):
    """In float64, where padding must not change nine digits, with large weights, so that greedy texts have many different tokens."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.5)
    return model.double().eval()


def language_model(variant="rotary", **changes):
    return drawn_anew(HktForCausalLM(HktConfig(mask="causal", **small, **{**variants[variant], **changes})))


def classifier(**changes):
    return drawn_anew(HktForSequenceClassification(HktConfig(**{**small, "pooling": "mean", "num_labels": 3, **changes})))


def sequences(*lengths):
    return [torch.randint(1, 64, (length,)) for length in lengths]


def padded(rows, side):
    """Tokens and mask; padding is noise, since none of it may count."""
    longest = max(map(len, rows))
    tokens, mask = torch.randint(64, (len(rows), longest)), torch.zeros(len(rows), longest, dtype=torch.int64)
    for b, row in enumerate(rows):
        place = slice(longest - len(row), None) if side == "left" else slice(len(row))
        tokens[b, place], mask[b, place] = row, 1
    return {"input_ids": tokens, "attention_mask": mask}


def greedy(model, tokens, count, **options):
    inputs = {"input_ids": tokens} if torch.is_tensor(tokens) else tokens
    return model.generate(**inputs, max_new_tokens=count, **{"do_sample": False, **options})


def close(a, b, tolerance=1e-9):
    torch.testing.assert_close(a, b, atol=tolerance, rtol=tolerance, check_dtype=False)


@pytest.mark.parametrize("module", [hkt.hf, hkt.hf_tokenizer])
def test_docstrings_hold(module):
    result = doctest.testmod(module)
    assert result.attempted > 0 and result.failed == 0


# ---- the files of `hkt export --hf`


def exported(folder, out, *options):
    done = program.run("export", folder, "--out", out, "--hf", *options)
    assert done.returncode == 0, done.stderr
    return out


def test_exported_language_model(tmp_path):
    folder = exported(models / "enwik8-hkt", tmp_path / "lm")
    own = hkt.load(models / "enwik8-hkt")
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert type(model) is HktForCausalLM and type(tokenizer) is HktTokenizer
    assert model.config.model_config("language") == own.config
    batch = tokenizer(["The history of ", "In [[1911]] the "], return_tensors="pt", padding=True)
    tokens = batch.input_ids[1:]
    with torch.no_grad():
        torch.testing.assert_close(model(tokens).logits, own(tokens), atol=1e-5, rtol=1e-5)
    both = greedy(model, batch, 12)
    assert torch.equal(both[1:], own.generate(tokens, 12))
    assert torch.equal(both[:1, 1:], own.generate(batch.input_ids[:1, 1:], 12))
    write = pipeline("text-generation", model=str(folder))
    assert write.model.dtype == torch.bfloat16
    write = pipeline("text-generation", model=model, tokenizer=tokenizer)
    texts = write(["The history of ", "In [[1911]] the "], batch_size=2, max_new_tokens=12, do_sample=False)
    assert [text[0]["generated_text"] for text in texts] == tokenizer.batch_decode(both, skip_special_tokens=True)
    assert write("", max_new_tokens=2, do_sample=False)  # begins with the byte 0


def test_exported_classifier(tmp_path):
    folder = exported(models / "imdb-hkt", tmp_path / "classifier", "--precision", "float32")
    own = hkt.load(models / "imdb-hkt")
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    assert type(model) is HktForSequenceClassification and model.dtype == torch.float32
    assert model.config.id2label == {0: "neg", 1: "pos"} and model.config.label2id == {"neg": 0, "pos": 1}
    texts = ["I enjoyed every minute of it.", "Two hours that I will not get back, and a waste of a good cast."]
    classify = pipeline("text-classification", model=str(folder))
    for text, answer in zip(texts, classify(texts, batch_size=2, top_k=None)):
        with torch.no_grad():
            logits = own(torch.tensor([list(text.encode())]))
            torch.testing.assert_close(model(torch.tensor([list(text.encode())])).logits, logits, atol=1e-5, rtol=1e-5)
        expected = dict(zip(own.labels, logits[0].softmax(0).tolist()))
        assert {one["label"]: one["score"] for one in answer} == pytest.approx(expected, abs=1e-5)


# ---- padding


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("variant", variants)
def test_padding_of_language_models_counts_for_nothing(variant, side):
    model, rows = language_model(variant), sequences(17, 1, 10, 5)
    batch = padded(rows, side)
    labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, ignored)
    output = model(**batch, labels=labels)
    single = [model(row[None]).logits for row in rows]
    for b, logits in enumerate(single):
        close(output.logits[b][batch["attention_mask"][b] == 1], logits[0])
    losses = [F.cross_entropy(logits[0, :-1], row[1:], reduction="sum") for logits, row in zip(single, rows)]
    close(output.loss, sum(losses) / sum(len(row) - 1 for row in rows), 1e-6)  # transformers computes losses in float32
    output.loss.backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    model.zero_grad()
    (sum(losses) / sum(len(row) - 1 for row in rows)).backward()
    for parameter, gradient in zip(model.parameters(), gradients):
        close(gradient, parameter.grad, 1e-6)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("changes", [
    {}, {"pooling": "last"}, {"mask": "causal", "positions": "rotary"}, {"levels": 4, "positions": "learned"},
])
def test_padding_of_classifiers_counts_for_nothing(changes, side):
    model, rows = classifier(**changes), sequences(17, 1, 10, 5)
    close(model(**padded(rows, side)).logits, torch.cat([model(row[None]).logits for row in rows]))


def test_masks_of_ones_and_of_other_types_change_nothing():
    model, (tokens,) = language_model(), sequences(9)
    for mask in (torch.ones(1, 9), torch.ones(1, 9, dtype=torch.bool), torch.ones(1, 9, dtype=torch.int32)):
        assert torch.equal(model(tokens[None], mask).logits, model(tokens[None]).logits)


# ---- generation


@pytest.mark.parametrize("variant", variants)
def test_greedy_and_beam_search_of_a_padded_batch_are_those_of_single_sequences(variant):
    model, rows = language_model(variant), sequences(13, 4, 1, 8)
    batch = padded(rows, "left")
    for options in ({}, {"use_cache": False}, {"num_beams": 3}, {"num_beams": 2, "num_return_sequences": 2}):
        together = greedy(model, batch, 20, **options).view(len(rows), -1, 13 + 20)
        for row, texts in zip(rows, together):
            alone = greedy(model, row[None], 20, **options)
            assert torch.equal(texts[:, 13 - len(row) :], alone)
            if not options:
                assert torch.equal(alone, model.model.generate(row[None], 20))
        assert len(together[:, :, 13:].unique()) > 4


def test_long_generation_is_that_of_whole_passes():
    model, (tokens,) = language_model(levels=4), sequences(3)
    text = greedy(model, tokens[None], 58)
    with torch.no_grad():
        assert torch.equal(text[:, 3:], model(text[:, :-1]).logits[:, 2:].argmax(2))


def test_samples_do_not_depend_on_padding():
    model, rows = language_model(), sequences(6, 6, 6)
    batch = padded([*rows, *sequences(11)], "left")
    with_padding = {name: tensor[:3] for name, tensor in batch.items()}
    texts = []
    for inputs in (padded(rows, "left"), with_padding):
        torch.manual_seed(1)
        texts.append(greedy(model, inputs, 20, do_sample=True, top_k=20)[:, -26:])
    assert torch.equal(texts[0], texts[1])
    torch.manual_seed(2)
    assert not torch.equal(greedy(model, with_padding, 20, do_sample=True, top_k=20)[:, -26:], texts[1])


def test_sequences_that_end_are_padded():
    model, batch = language_model(), padded(sequences(7, 3), "left")
    free = greedy(model, batch, 15)
    end = int(free[0, 9])
    text = greedy(model, batch, 15, eos_token_id=end, pad_token_id=0)
    first = [int((row[7:] == end).nonzero()[0]) if end in row[7:] else len(row) - 7 for row in free]
    for now, before, count in zip(text, free, first):
        assert torch.equal(now[: 7 + count], before[: 7 + count][: len(now)]) and (now[7 + count + 1 :] == 0).all()


@pytest.mark.parametrize("variant", variants)
def test_drafts_that_are_taken_back_change_nothing(variant):
    model, assistant, rows = language_model(variant), language_model(variant), sequences(12, 12)
    with torch.no_grad():  # an assistant that is often right
        for own, other in zip(assistant.parameters(), model.parameters()):
            own.copy_(other + 0.02 * torch.randn_like(other))
    batch = {name: tensor[:1] for name, tensor in padded([rows[0][:9], rows[1]], "left").items()}
    for inputs in ({"input_ids": rows[0][None]}, batch):
        text = greedy(model, inputs, 30)
        assert torch.equal(greedy(model, inputs, 30, prompt_lookup_num_tokens=5), text)
        assert torch.equal(greedy(model, inputs, 30, assistant_model=assistant), text)


def test_prompts_in_chunks():
    model, rows = language_model(), sequences(15, 8)
    batch = padded(rows, "left")
    for inputs in ({"input_ids": rows[0][None]}, batch):
        chunks = greedy(model, inputs, 10, prefill_chunk_size=4, past_key_values=HktCache(model))
        assert torch.equal(chunks, greedy(model, inputs, 10))


def test_a_cache_goes_on_where_generation_ended():
    model, rows = language_model(), sequences(9, 5)
    cache, batch = HktCache(model), padded(rows, "left")
    text = greedy(model, batch, 8, past_key_values=cache)
    assert cache.get_seq_length() == text.size(1) - 1
    longer = {"input_ids": torch.cat([text, torch.stack(sequences(4, 4))], 1)}
    longer["attention_mask"] = F.pad(batch["attention_mask"], (0, 12), value=1)
    prefix = copy.deepcopy(cache)
    assert torch.equal(greedy(model, longer, 10, past_key_values=cache), greedy(model, longer, 10))
    assert prefix.get_seq_length() == text.size(1) - 1 and prefix.state.model is model.model
    assert torch.equal(greedy(model, longer, 10, past_key_values=prefix), greedy(model, longer, 10))


def test_generation_past_the_longest_length_is_refused_before_it_begins():
    model, rows = language_model(), sequences(40, 60)
    assert greedy(model, rows[0][None], 25).shape == (1, 65)  # the last token need not be read
    for options in ({}, {"use_cache": False}):
        with pytest.raises(ValueError, match="all but the last, are 65; this model takes at most 64"):
            greedy(model, rows[0][None], 26, **options)
    shorter = {name: tensor[:1] for name, tensor in padded(rows, "left").items()}
    assert torch.equal(greedy(model, shorter, 25)[:, 20:], greedy(model, rows[0][None], 25))  # 85 columns, 65 tokens
    assert model.generate(rows[1][None], do_sample=False).shape == (1, 64)  # as transformers does by default
    with pytest.raises(ValueError, match="tokens has length 65; this LanguageModel takes at most 64"):
        model(torch.zeros(1, 65, dtype=torch.int64))


# ---- caches


def test_cached_logits_and_crop_and_reorder():
    model, rows = language_model(), sequences(20, 20, 20)
    tokens = torch.stack(rows)
    mask = torch.ones_like(tokens)
    mask[1, :5] = 0
    with torch.no_grad():
        expected = model(tokens, mask).logits
    cache = HktCache(model, crop=True)
    pieces = [model(tokens[:, :9], mask[:, :9], cache).logits]
    model(torch.stack(sequences(6, 6, 6)), past_key_values=cache)  # drafts
    cache.crop(-6)
    assert cache.get_seq_length() == 9 and cache.state.decoding.lengths == [9, 4, 9]
    pieces += [model(tokens[:, 9:10], mask[:, :10], cache).logits, model(tokens[:, 10:], mask, cache).logits]
    valid = mask == 1
    close(torch.cat(pieces, 1)[valid], expected[valid])
    cache.crop(-8)
    cache.reorder_cache(torch.tensor([2, 0, 1]))
    close(model(tokens[[2, 0, 1], 12:], past_key_values=cache).logits, expected[[2, 0, 1], 12:])
    cache.crop(-3)
    cache.batch_select_indices(torch.tensor([True, False, True]))
    cache.batch_repeat_interleave(2)
    close(model(tokens[[2, 2, 1, 1], 17:], past_key_values=cache).logits, expected[[2, 2, 1, 1], 17:])
    cache.reset()
    assert cache.get_seq_length() == 0
    close(model(tokens[[0, 0, 2, 2]], past_key_values=cache).logits, expected[[0, 0, 2, 2]])


def test_caches_grow_and_begin_by_themselves():
    model, (tokens,) = language_model(), sequences(60)
    cache = HktCache(model, capacity=3)
    pieces = [model(piece[None], past_key_values=cache).logits for piece in tokens.split([2, 1, 30, 1, 26])]
    close(torch.cat(pieces, 1), model(tokens[None]).logits.detach())
    output = model(tokens[None, :7], use_cache=True, logits_to_keep=1)
    assert output.logits.shape == (1, 1, 64) and not output.logits.requires_grad
    close(model(tokens[None, 7:9], past_key_values=output.past_key_values).logits, pieces[2][:, 4:6])


def test_what_caches_refuse():
    model, (tokens,) = language_model(), sequences(8)
    cache = HktCache(model)
    model(tokens[None], past_key_values=cache)
    with pytest.raises(ValueError, match="cannot be truncated to 6: .* takes back at most 0"):
        cache.crop(-2)
    with pytest.raises(ValueError, match="tokens_to_remove is 2; it must be negative"):
        cache.crop(2)
    with pytest.raises(ValueError, match="input_ids has 2 rows; past_key_values has 1"):
        model(torch.stack(sequences(3, 3)), past_key_values=cache)
    with pytest.raises(TypeError, match="past_key_values is a DynamicCache; HktForCausalLM needs a hkt.hf.HktCache"):
        greedy(model, tokens[None], 3, past_key_values=DynamicCache())
    with pytest.raises(ValueError, match="labels are given with a cache"):
        model(tokens[None], labels=tokens[None], use_cache=True)


# ---- arguments


def test_masks_that_mean_nothing_are_refused():
    model, tokens = language_model(), torch.stack(sequences(6, 6))
    for row in ([1, 1, 0, 1, 1, 1], [0, 1, 0, 1, 1, 0], [1, 1, 1, 2, 2, 2], [0, 0, -1, -1, 0, 0]):
        mask = torch.tensor([[1] * 6, row])
        for other in (model, classifier()):
            with pytest.raises(ValueError, match="attention_mask must be 1 for the tokens of a row, without gaps, and 0 for padding"):
                other(tokens, mask)
    with pytest.raises(ValueError, match=r"attention_mask has shape \[2, 1, 6, 6\]; it must be \[2, 6\]"):
        model(tokens, torch.ones(2, 1, 6, 6))
    with pytest.raises(ValueError, match=r'padding after tokens; to generate, pad on the left \(padding_side="left"\)'):
        greedy(model, padded(sequences(6, 3), "right"), 3)
    with pytest.raises(ValueError, match="prompt 1 has no tokens; to generate it needs at least one"):
        greedy(model, {"input_ids": tokens, "attention_mask": torch.tensor([[1] * 6, [0] * 6])}, 3)


def test_other_arguments_that_are_refused():
    model, other, (tokens,) = language_model(), classifier(), sequences(6)
    embeddings = model.get_input_embeddings()(tokens[None])
    for call in (lambda: model(inputs_embeds=embeddings), lambda: other(inputs_embeds=embeddings),
                 lambda: model.generate(inputs_embeds=embeddings, max_new_tokens=2)):
        with pytest.raises(ValueError, match="inputs_embeds is given; Hkt.* takes input_ids"):
            call()
    for name in ("output_attentions", "output_hidden_states"):
        with pytest.raises(ValueError, match=f"{name} is given"):
            model(tokens[None], **{name: True})
    with pytest.raises(ValueError, match=r"input_ids is None; it must be \[batch, length\]"):
        model()
    with pytest.raises(TypeError, match="position_ids"):
        model(tokens[None], position_ids=torch.arange(6)[None])
    with pytest.raises(ValueError, match=r"tokens contains 64; the model takes 0 to 63"):
        model(tokens[None] * 0 + 64)


def test_logits_to_keep_and_tuples():
    model, (tokens,) = language_model(), sequences(11)
    logits = model(tokens[None]).logits
    close(model(tokens[None], logits_to_keep=3).logits, logits[:, -3:])
    close(model(tokens[None], logits_to_keep=torch.tensor([0, 5])).logits, logits[:, [0, 5]])
    output = model(tokens[None], labels=tokens[None], logits_to_keep=1)
    loss, last = model(tokens[None], labels=tokens[None], logits_to_keep=1, return_dict=False)
    assert torch.equal(loss, output.loss) and last.shape == (1, 1, 64)
    close(loss, F.cross_entropy(logits[0, :-1], tokens[1:]), 1e-6)
    close(model(tokens[None], labels=tokens[None], num_items_in_batch=20).loss, loss / 2, 1e-6)
    other = classifier()
    assert len(other(tokens[None], return_dict=False)) == 1
    other.config.return_dict = False
    assert len(other(tokens[None], labels=torch.tensor([1]))) == 2


def test_losses_of_classifiers():
    tokens = torch.stack(sequences(6, 6))
    model = classifier()
    close(model(tokens, labels=torch.tensor([2, 0])).loss, F.cross_entropy(model(tokens).logits, torch.tensor([2, 0])))
    model = classifier(num_labels=1)
    close(model(tokens, labels=torch.tensor([0.5, 2.0])).loss, F.mse_loss(model(tokens).logits[:, 0], torch.tensor([0.5, 2.0])))
    model, wanted = classifier(problem_type="multi_label_classification"), torch.tensor([[1.0, 0, 1], [0, 0, 1]])
    close(model(tokens, labels=wanted).loss, F.binary_cross_entropy_with_logits(model(tokens).logits, wanted))


# ---- configs and files


@pytest.mark.parametrize("values, sentence", [
    ({"heads": 3}, "model.width is 128; it must be a multiple of model.heads, 3."),
    ({"filter": "dens"}, 'model.filter is "dens"; it must be one of "dense", "depthwise", "mean" (nearest: "dense").'),
    ({"weights": 7}, "model.weights is 7; it must be below model.levels, 3."),
    ({"hidden_size": 0}, "model.width is 0; it must be an integer from 1 to 65536."),
    ({"max_position_embeddings": "long"}, 'model.max_length is "long"; it must be an integer from 1 to 16777216.'),
    ({"dropout": 1.5}, "model.dropout is 1.5; it must be a number from 0 to below 1."),
])
def test_values_that_configs_refuse(values, sentence, tmp_path):
    with pytest.raises(ValueError) as error:
        HktConfig(**values)
    assert str(error.value) == sentence
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "hkt", **values}))
    with pytest.raises(ValueError) as error:
        AutoConfig.from_pretrained(tmp_path)
    assert str(error.value) == sentence


def test_a_language_model_must_be_causal():
    with pytest.raises(ValueError, match='model.mask is "none"; a language model needs "causal".'):
        HktForCausalLM(HktConfig())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("variant", variants)
def test_saved_language_models_load_again(variant, dtype, tmp_path):
    model, (tokens,) = language_model(variant).to(dtype), sequences(9)
    model.generation_config.max_new_tokens = 4
    model.save_pretrained(tmp_path)
    assert {file.name for file in tmp_path.iterdir()} == {"config.json", "generation_config.json", "model.safetensors"}
    other = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert other.dtype == dtype and not other.training and other.config.to_dict().items() >= variants[variant].items()
    assert other.generate(tokens[None], do_sample=False).shape == (1, 13)
    assert AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32).dtype == torch.float32
    assert HktForCausalLM.from_pretrained(tmp_path, torch_dtype="bfloat16").dtype == torch.bfloat16
    other.save_pretrained(tmp_path / "again")
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (tmp_path / "model.safetensors").read_bytes()
    hkt.save(other.model, tmp_path / "run")
    assert hkt.load(tmp_path / "run").config == model.model.config
    close(other.double()(tokens[None]).logits, model.double()(tokens[None]).logits)


def test_saved_classifiers_load_again(tmp_path):
    model, (tokens,) = classifier(id2label={0: "no", 1: "perhaps", 2: "yes"}, label2id={"no": 0, "perhaps": 1, "yes": 2}), sequences(9)
    model.save_pretrained(tmp_path)
    other = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert other.config.id2label == {0: "no", 1: "perhaps", 2: "yes"} and other.num_labels == 3
    close(other(tokens[None]).logits, model(tokens[None]).logits)


@pytest.mark.parametrize("variant", variants)
def test_a_classifier_begins_with_the_weights_of_a_language_model(variant, tmp_path):
    model = language_model(variant)
    model.save_pretrained(tmp_path)
    other = AutoModelForSequenceClassification.from_pretrained(tmp_path, num_labels=5, ignore_mismatched_sizes=True)
    for name, parameter in other.model.named_parameters():
        if name.startswith("head."):
            assert parameter.isfinite().all() and 0 < parameter.abs().max() < 0.26
        else:
            assert torch.equal(parameter, model.model.get_parameter(name)), name
    assert other(sequences(4)[0][None]).logits.shape == (1, 5)


def test_new_models_start_as_those_of_hkt():
    config = HktConfig(mask="causal", positions="rotary", **small)
    torch.manual_seed(3)
    model = HktForCausalLM(config)
    torch.manual_seed(3)
    for own, other in zip(model.model.parameters(), hkt.nn.LanguageModel(config.model_config("language")).parameters(), strict=True):
        assert torch.equal(own, other)


@pytest.mark.parametrize("variant", ["rotary", "learned"])
def test_more_tokens(variant, tmp_path):
    model, (tokens,) = language_model(variant), sequences(9)
    logits = model(tokens[None]).logits
    model.resize_token_embeddings(70)
    assert model.config.vocab == model.config.vocab_size == model.model.config.vocab == 70
    assert model(tokens[None] * 0 + 69).logits.shape == (1, 9, 70)
    close(model(tokens[None]).logits[:, :, :64], logits)
    model.save_pretrained(tmp_path)
    close(AutoModelForCausalLM.from_pretrained(tmp_path)(tokens[None]).logits, model(tokens[None]).logits)
    assert classifier().resize_token_embeddings(70).num_embeddings == 70


def test_tokenizer(tmp_path):
    tokenizer = HktTokenizer(padding_side="left")
    tokenizer.add_tokens(["<question>"])
    tokenizer.save_pretrained(tmp_path)
    HktConfig().save_pretrained(tmp_path)
    other = AutoTokenizer.from_pretrained(tmp_path)
    assert type(other) is HktTokenizer and other.padding_side == "left" and len(other) == 257
    batch = other(["né<question>", "a"], padding=True, return_tensors="pt")
    assert batch.input_ids.tolist() == [[110, 195, 169, 256], [0, 0, 0, 97]]
    assert batch.attention_mask.tolist() == [[1, 1, 1, 1], [0, 0, 0, 1]]
    assert other.decode(batch.input_ids[0]) == "né<question>"


# ---- training


def test_gradient_checkpointing_gives_the_same_gradients():
    for model, labels in ((language_model(), None), (classifier(), torch.tensor([0, 2]))):
        batch = padded(sequences(12, 7), "left")
        batch["labels"] = batch["input_ids"] if labels is None else labels
        gradients = []
        for enable in (False, True):
            model.train()
            if enable:
                model.gradient_checkpointing_enable()
            assert model.is_gradient_checkpointing is model.model.checkpoints is enable
            model.zero_grad()
            model(**batch).loss.backward()
            gradients.append([parameter.grad.clone() for parameter in model.parameters()])
        for one, other in zip(*gradients):
            torch.testing.assert_close(one, other, atol=0, rtol=0)
        model.gradient_checkpointing_disable()
        assert not model.model.checkpoints


def training(folder, **changes):
    always = {"per_device_train_batch_size": 4, "learning_rate": 1e-2, "logging_steps": 1, "report_to": [], "use_cpu": True}
    return TrainingArguments(str(folder), disable_tqdm=True, **always, **changes)


def test_trainer_of_a_language_model(tmp_path):
    tokenizer = HktTokenizer(model_max_length=64)
    model = HktForCausalLM(HktConfig(mask="causal", positions="rotary", **small | {"vocab": 256}))
    texts = [tokenizer("abcdefgh" * count) for count in (2, 3, 4, 5)] * 4
    options = training(tmp_path, max_steps=8, save_steps=8, gradient_accumulation_steps=2, gradient_checkpointing=True)
    collator = DataCollatorForLanguageModeling(tokenizer, mlm=False)
    trainer = Trainer(model, options, collator, texts, texts[:3], processing_class=tokenizer)
    before = trainer.evaluate()["eval_loss"]
    trainer.train()
    after = trainer.evaluate()["eval_loss"]
    assert after < before - 0.5
    losses = [line["loss"] for line in trainer.state.log_history if "loss" in line]
    assert losses[0] == pytest.approx(before, abs=0.3)  # a mean over the tokens of both batches of a step
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "checkpoint-8")
    assert model.generation_config.pad_token_id == 0
    batch = padded([torch.tensor(text.input_ids) for text in texts[:3]], "left")
    with torch.no_grad():
        labels = batch["input_ids"].masked_fill(batch["attention_mask"] == 0, ignored)
        assert float(model(**batch, labels=labels).loss) == pytest.approx(after, abs=1e-3)


def test_trainer_of_a_classifier(tmp_path):
    tokenizer = HktTokenizer(model_max_length=64)
    model = HktForSequenceClassification(HktConfig(**{**small, "vocab": 256, "num_labels": 2}))
    examples = [{**tokenizer(letter * count), "label": label} for label, letter in enumerate("xy") for count in range(1, 9)]
    options = training(tmp_path, max_steps=15, save_strategy="no")
    trainer = Trainer(model, options, DataCollatorWithPadding(tokenizer), examples, examples, processing_class=tokenizer)
    trainer.train()
    answers = trainer.predict(examples)
    assert (answers.predictions.argmax(1) == answers.label_ids).all()
