# SPDX-License-Identifier: Apache-2.0
"""Decoding with hkt.cache gives what forward passes give, however the sequences came about; generate() and what is refused."""
import random

import pytest
import torch

from hkt._decoding_plan import LONGEST_CALL
from hkt.cache import AttentionState, DecodingState
from hkt.config import ModelConfig
from hkt.nn import HierarchicalAttention, LanguageModel
from test_package_models import names

VOCAB = 11
small = dict(kind="language", mask="causal", positions="rotary", width=16, heads=2, blocks=2, feedforward=16, vocab=VOCAB, max_length=700)
variants = [
    dict(),
    dict(levels=1),
    dict(levels=5, key_heads=1),
    dict(levels=4, heads=4, key_heads=1, filter="depthwise", kernel_size=4),  # whose coarse scores are not kept
    dict(filter="mean", kernel_size=3, positions="sinusoidal"),
    dict(kernel_size=1, positions="none", weights=1),
    dict(short_convolution="depthwise", positions="learned"),
    dict(short_convolution="dense", convolution_on="qkv", convolution_taps=6),
    dict(filter="depthwise", filter_on="projected", key_heads=1, short_convolution="depthwise"),
    dict(projections="per_level", weights="uniform"),
    dict(psd="tied", tied=True, biases=False),
    dict(psd="cone", projections="per_level"),
]
every_variant = pytest.mark.parametrize("changes", variants, ids=names)


def model_of(**changes):
    """In float64, and away from the start, where the levels count alike."""
    model = LanguageModel(ModelConfig(**{**small, **changes})).double().eval().requires_grad_(False)
    for parameter in model.parameters():
        parameter.add_(torch.randn_like(parameter), alpha=0.2)
    return model


def tokens_of(batch, length):
    return torch.randint(VOCAB, (batch, length))


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def last_logits(model, *parts):
    """Of one sequence without a cache, after its last token."""
    return model(torch.cat(parts)[None])[0, -1]


def assert_goes_on(state, model, histories, count=9):
    """Each sequence has had these tokens; the next ones get the logits of full passes."""
    more = tokens_of(len(histories), count)
    for i in range(count):
        logits = state.step(more[:, i])
        for b, history in enumerate(histories):
            torch.testing.assert_close(logits[b], last_logits(model, history, more[b, : i + 1]))
    assert state.lengths == [len(history) + count for history in histories]


@every_variant
def test_token_by_token(changes):
    """At every length, so at every one modulo 2^(levels − 1)."""
    model = model_of(**changes)
    length = 2 ** model.config.levels + 3
    tokens = tokens_of(2, length)
    state = DecodingState(model, 2, length)
    logits = torch.stack([state.step(tokens[:, i]) for i in range(length)], 1)
    torch.testing.assert_close(logits, model(tokens))


@every_variant
def test_in_pieces(changes):
    """Of all lengths, below and above the one from which attention takes another path, in any order, after clear(), too."""
    model, order = model_of(**changes), random.Random(1)
    state = DecodingState(model, 2, 170)
    for _ in range(2):
        tokens, pieces, begin = tokens_of(2, 170), [], 0
        while begin < 170:
            size = min(order.choice([1, 1, 2, 3, 7, 66]), 170 - begin)
            pieces.append(state.extend(tokens[:, begin : begin + size]))
            begin += size
        torch.testing.assert_close(torch.cat(pieces, 1), model(tokens))
        state.clear()
        assert state.lengths == [0, 0]


@every_variant
def test_prompts_padded_on_the_left(changes):
    """As transformers pads: what each sequence gets is what it gets alone, whatever the padding is; also for an empty one."""
    model, lengths = model_of(**changes), [80, 1, 37, 0]
    tokens = tokens_of(4, 80)
    state = DecodingState(model, 4, 100)
    logits = state.prefill(tokens, lengths)
    histories = [row[80 - length :] for row, length in zip(tokens, lengths)]
    for b in range(3):
        torch.testing.assert_close(logits[b], last_logits(model, histories[b]))
    assert state.lengths == lengths
    assert_goes_on(state, model, histories)


@every_variant
def test_tokens_taken_back(changes):
    """As speculative decoding does: each sequence as many as it likes, and again before new ones have filled the gap."""
    model, order = model_of(**changes), random.Random(2)
    state = DecodingState(model, 2, 200, take_back=12)
    histories = list(tokens_of(2, 30))
    state.extend(torch.stack(histories))
    longest = 30
    for _ in range(6):
        wanted = [order.randint(max(longest - 12, 1), len(history)) for history in histories]
        state.truncate(wanted)
        histories = [history[:count] for history, count in zip(histories, wanted)]
        drafts = tokens_of(2, order.choice([1, 2, 9]))
        logits = state.extend(drafts)
        histories = [torch.cat([history, draft]) for history, draft in zip(histories, drafts)]
        longest = max(longest, *map(len, histories))
        for b, history in enumerate(histories):
            torch.testing.assert_close(logits[b], model(history[None])[0, -drafts.size(1) :])
    assert_goes_on(state, model, histories)


@every_variant
def test_sequences_are_reordered_and_get_more_room(changes):
    model = model_of(**changes)
    tokens, lengths = tokens_of(2, 13), [13, 6]
    histories = [row[13 - length :] for row, length in zip(tokens, lengths)]
    state = DecodingState(model, 2, 13)
    state.prefill(tokens, lengths)
    for index in ([1, 1, 0], torch.tensor([2, 0])):
        state.reorder(index)
        histories = [histories[i] for i in index]
        assert state.batch == len(histories) and state.lengths == [len(history) for history in histories]
        state.reserve(state.capacity + 9)
        more = tokens_of(len(histories), 1)
        state.step(more[:, 0])
        histories = [torch.cat([history, token]) for history, token in zip(histories, more)]
    state.reserve(3)
    assert state.capacity == 31
    assert_goes_on(state, model, histories)


@pytest.mark.parametrize("changes", [dict(), dict(short_convolution="dense", kernel_size=4)], ids=names)
def test_prompts_longer_than_one_call(changes):
    """And than what is kept of the inputs of filters, whose places are used again."""
    model = model_of(**changes)
    tokens, state = tokens_of(2, LONGEST_CALL + 100), DecodingState(model, 2, LONGEST_CALL + 120)
    for lengths in ([LONGEST_CALL + 100] * 2, [LONGEST_CALL + 90, 30], [3, 1]):  # the first call sees nothing of short ones
        state.clear()
        logits = state.prefill(tokens, lengths)
        histories = [row[len(row) - length :] for row, length in zip(tokens, lengths)]
        for b, history in enumerate(histories):
            torch.testing.assert_close(logits[b], last_logits(model, history))
        assert_goes_on(state, model, histories, count=2)


def test_more_tokens_taken_back_than_one_call_brings():
    model, tokens = model_of(kernel_size=4), tokens_of(1, 680)
    state = DecodingState(model, 1, 700, take_back=600)
    state.extend(tokens)
    state.truncate([81])
    assert_goes_on(state, model, [tokens[0, :81]])


@pytest.mark.parametrize("changes", [dict(), dict(filter="depthwise", filter_on="projected", key_heads=1), dict(psd="cone", short_convolution="dense")],
                         ids=names)
def test_a_layer_of_its_own(changes):
    layer = HierarchicalAttention(16, 2, levels=4, causal=True, positions="rotary", **changes).double()
    x, lengths = torch.randn(3, 90, 16, dtype=torch.float64), [90, 20, 1]
    state = AttentionState(layer, 3, 100)
    padded = state.extend(x[:, :70], [length - 20 if length > 20 else 0 for length in lengths])
    torch.testing.assert_close(padded[0], layer(x[:1, :70])[0])
    rest = torch.cat([state.extend(x[:, i : i + 1]) for i in range(70, 90)], 1)
    torch.testing.assert_close(rest[0], layer(x[:1])[0, 70:])
    torch.testing.assert_close(rest[1:], layer(x[1:, 70:]))


def test_hidden_is_the_output_of_the_last_block():
    model, tokens = model_of(), tokens_of(2, 20)
    state = DecodingState(model, 2, 20)
    torch.testing.assert_close(torch.cat([state.hidden(tokens[:, :9]), state.hidden(tokens[:, 9:])], 1), model.hidden(tokens))


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.bfloat16, 0.1)])
def test_precision(dtype, tolerance):
    """Low precision has each step's own rounding; float32 has next to none."""
    model, tokens = model_of().to(dtype), tokens_of(2, 40)
    state = DecodingState(model, 2, 40)
    logits = torch.stack([state.step(tokens[:, i]) for i in range(40)], 1)
    assert logits.dtype == dtype
    torch.testing.assert_close(logits, model(tokens), rtol=tolerance, atol=tolerance)


def test_under_autocast_caches_are_low_and_logits_near():
    model, tokens = model_of().float(), tokens_of(2, 40)
    with torch.autocast("cpu", torch.bfloat16):
        state = DecodingState(model, 2, 40)
        logits = torch.stack([state.step(tokens[:, i]) for i in range(40)], 1)
    assert state._layers[0].v.dtype == torch.bfloat16
    torch.testing.assert_close(logits.float(), model(tokens), rtol=0.1, atol=0.1)


def test_a_state_outlives_inference_mode():
    model, tokens = model_of(), tokens_of(1, 20)
    with torch.inference_mode():
        state = DecodingState(model, 1, 20)
        state.extend(tokens[:, :9])
        state.reorder([0])
    state.reserve(20)
    torch.testing.assert_close(state.extend(tokens[:, 9:]), model(tokens)[:, 9:])


# generate()


def test_greedy_generation_is_that_of_full_passes():
    model, prompts, lengths = model_of(), tokens_of(3, 12), [12, 5, 1]
    tokens = model.generate(prompts, 30, lengths=lengths)
    assert torch.equal(tokens[:, :12], prompts) and tokens.shape == (3, 42)
    for row, length in zip(tokens, lengths):
        history = row[12 - length : 12]
        for _ in range(30):
            history = torch.cat([history, last_logits(model, history).argmax()[None]])
        assert torch.equal(row[12 - length :], history)


@pytest.mark.parametrize("max_length", [16, 17])
def test_generation_goes_on_from_the_last_half_when_the_context_is_full(max_length):
    model, count = model_of(max_length=max_length), 60
    tokens = model.generate(tokens_of(1, 3), count, temperature=1.0, generator=seeded())
    window, generator = tokens[:, :3], seeded()
    for expected in tokens[0, 3:]:
        window = model.generate(window, 1, temperature=1.0, generator=generator)
        assert window[0, -1] == expected
        if window.size(1) > max_length:
            window = window[:, -((max_length + 1) // 2) :]


def test_a_prompt_longer_than_the_context_counts_by_its_end():
    model, prompt = model_of(max_length=16), tokens_of(1, 40)
    assert torch.equal(model.generate(prompt, 5)[:, 40:], model.generate(prompt[:, -8:], 5)[:, 8:])


def test_stop_tokens_end_a_row_and_then_all():
    model, prompts = model_of(), tokens_of(4, 6)
    free = model.generate(prompts, 60, temperature=1.0, generator=seeded())
    stops, ends = [3, 7], []
    tokens = model.generate(prompts, 60, temperature=1.0, generator=seeded(), stop=stops)
    for row, whole in zip(tokens, free):
        ends.append(6 + torch.isin(whole[6:], torch.tensor(stops)).nonzero()[0].item() + 1)
        assert torch.equal(row[: ends[-1]], whole[: ends[-1]])
        assert (row[ends[-1] :] == row[ends[-1] - 1]).all()
    assert tokens.size(1) == max(ends) and len(set(ends)) > 1
    alone = model.generate(prompts[:1], 60, temperature=1.0, generator=seeded(), stop=3)
    assert alone[0, -1] == 3 and (alone[0, 6:-1] != 3).all()


def test_sampling_follows_the_probabilities():
    model, prompt = model_of(), tokens_of(1, 4)
    probability = (last_logits(model, prompt[0]) / 0.7).softmax(0)
    generator = seeded()
    many = 4000
    drawn = model.generate(prompt.expand(many, -1), 1, temperature=0.7, generator=generator)[:, 4].bincount(minlength=VOCAB) / many
    assert (drawn - probability).abs().max() < 4 / many**0.5
    best = probability.topk(3).indices
    for options in (dict(top_k=3), dict(top_p=(probability[best[:2]].sum() + 1e-6).item())):
        drawn = model.generate(prompt.expand(500, -1), 1, temperature=0.7, generator=generator, **options)[:, 4]
        assert set(drawn.tolist()) == set(best.tolist())
    assert torch.equal(model.generate(prompt, 9, temperature=0.5, top_k=1), model.generate(prompt, 9))


def test_the_same_seed_gives_the_same_text():
    model, prompt = model_of(), tokens_of(2, 4)
    first, again, other = (model.generate(prompt, 20, temperature=1.0, generator=seeded(seed)) for seed in (0, 0, 1))
    assert torch.equal(first, again) and not torch.equal(first, other)


# What is refused, in one sentence


def causal_layer():
    return HierarchicalAttention(16, 2, causal=True)


def filled(count=4, capacity=6, take_back=2):
    state = DecodingState(model_of(), 2, capacity, take_back=take_back)
    state.extend(tokens_of(2, count))
    return state


@pytest.mark.parametrize("call, message", [
    (lambda: AttentionState(HierarchicalAttention(16, 2), 1, 8), 'mask is "none"; AttentionState needs a causal one'),
    (lambda: AttentionState(causal_layer(), 0, 8), "batch is 0; AttentionState needs at least 1"),
    (lambda: AttentionState(causal_layer(), 1, 0), "capacity is 0; AttentionState needs at least 1"),
    (lambda: AttentionState(causal_layer(), 1, 8, take_back=-1), "take_back is -1; it must be at least 0"),
    (lambda: AttentionState(causal_layer(), 1, 8).extend(torch.randn(1, 2, 15)), r"x has shape \[1, 2, 15\]; this state needs \[1, at least 1, 16\]"),
    (lambda: AttentionState(causal_layer(), 1, 8).extend(torch.randn(1, 0, 16)), "at least 1, 16"),
    (lambda: DecodingState(model_of(), 1, 701), "capacity is 701; DecodingState takes at most the model's max_length, 700"),
    (lambda: filled().reserve(701), "capacity is 701"),
    (lambda: filled().extend(tokens_of(2, 3)), "sequence 0 has 4 tokens and gets 3 more; the state has room for 6"),
    (lambda: filled().extend(tokens_of(3, 1)), r"tokens has shape \[3, 1\]; this state needs \[2, at least 1\]"),
    (lambda: filled().extend(tokens_of(2, 1).int()), "tokens is torch.int32 on cpu; it must be int64 on cpu"),
    (lambda: filled().extend(torch.tensor([[3], [11]])), r"tokens contains 11; the model takes 0 to 10"),
    (lambda: filled().step(tokens_of(2, 1)), r"tokens has shape \[2, 1\]; a step needs \[2\]"),
    (lambda: filled().prefill(tokens_of(2, 2), [2, 1]), "sequence 1 has 4 tokens; padding may only come before its first one"),
    (lambda: filled().prefill(tokens_of(2, 2), [2]), "lengths has 1 numbers; it needs 2"),
    (lambda: filled().prefill(tokens_of(2, 2), [2, 3]), "lengths contains 3; it must be from 0 to the length of the new tokens, 2"),
    (lambda: filled().truncate([4]), "lengths has 1 numbers; it needs 2"),
    (lambda: filled().truncate([5, 4]), "lengths contains 5; sequence 0 has 4 tokens"),
    (lambda: filled().truncate([4, 1]), "sequence 1 cannot be truncated to 1: it has had 4 tokens, and this state takes back at most 2"),
    (lambda: filled().reorder([]), "index is empty"),
    (lambda: filled().reorder([0, 2]), "index contains 2; it must be from 0 to 1"),
    (lambda: model_of().generate(tokens_of(1, 3), -1), "max_new_tokens is -1; it must be at least 0"),
    (lambda: model_of().generate(tokens_of(1, 0), 3), r"tokens has shape \[1, 0\]; generate needs \[batch, at least 1\]"),
    (lambda: model_of().generate(tokens_of(2, 3), 3, lengths=[3]), "lengths has 1 numbers; it needs 2"),
    (lambda: model_of().generate(tokens_of(2, 3), 3, lengths=[3, 4]), "lengths contains 4"),
    (lambda: model_of().generate(tokens_of(2, 3), 3, lengths=[3, 0]), "lengths contains 0"),
    (lambda: model_of(max_length=2).generate(tokens_of(1, 3), 1, lengths=[4]), "lengths contains 4"),
    (lambda: model_of().generate(tokens_of(1, 3), 3, temperature=-0.5), "temperature is -0.5; it must be 0 or a positive number"),
    (lambda: model_of().generate(tokens_of(1, 3), 3, temperature=float("nan")), "temperature is nan"),
    (lambda: model_of().generate(tokens_of(1, 3), 3, top_k=-1), "top_k is -1"),
    (lambda: model_of().generate(tokens_of(1, 3), 3, top_p=0), "top_p is 0; it must be above 0 and at most 1"),
])
def test_wrong_use_is_one_sentence(call, message):
    with pytest.raises(ValueError, match=message) as refusal:
        call()
    text = str(refusal.value)
    assert text.endswith(".") and "\n" not in text


def test_a_refused_call_changes_nothing():
    model = model_of()
    state, tokens = DecodingState(model, 2, 6, take_back=2), tokens_of(2, 6)
    state.extend(tokens[:, :4])
    for refused in (lambda: state.extend(tokens[:, :3]), lambda: state.truncate([4, 1]), lambda: state.prefill(tokens, [6, 5])):
        with pytest.raises(ValueError):
            refused()
    torch.testing.assert_close(state.extend(tokens[:, 4:]), model(tokens)[:, 4:])
