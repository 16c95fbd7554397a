# SPDX-License-Identifier: Apache-2.0
"""A byte language model of transformers: trained with Trainer, saved, loaded by AutoModelForCausalLM, and asked to write.

Needs transformers and accelerate: pip install 'hkt[hf]' accelerate. Some seconds on a CPU.
"""

import tempfile
from pathlib import Path

from transformers import AutoModelForCausalLM, AutoTokenizer, DataCollatorForLanguageModeling, Trainer, TrainingArguments

from hkt.hf import HktConfig, HktForCausalLM, HktTokenizer

LENGTH, STEPS = 128, 200


def windows(text: str, tokenizer: HktTokenizer) -> list[dict[str, list[int]]]:
    """Pieces of the text, each half a piece further on."""
    tokens = tokenizer(text).input_ids
    return [{"input_ids": tokens[begin : begin + LENGTH]} for begin in range(0, len(tokens) - LENGTH, LENGTH // 2)]


def train(folder: str) -> None:
    """A small model of this file, into a folder."""
    tokenizer = HktTokenizer()
    config = HktConfig(mask="causal", positions="rotary", filter="depthwise", kernel_size=4, max_position_embeddings=LENGTH, dropout=0.0)
    options = TrainingArguments(
        folder,
        max_steps=STEPS,
        per_device_train_batch_size=8,
        learning_rate=3e-3,
        lr_scheduler_type="cosine",
        logging_steps=STEPS // 4,
        save_strategy="no",
        report_to=[],
    )
    trainer = Trainer(
        HktForCausalLM(config),
        options,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
        train_dataset=windows(Path(__file__).read_text(), tokenizer),
        processing_class=tokenizer,
    )
    trainer.train()
    trainer.save_model()


def write(folder: str, prompts: list[str]) -> list[str]:
    """Prompts and what the model of a folder makes of them."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(folder, padding_side="left")
    batch = tokenizer(prompts, return_tensors="pt", padding=True)
    tokens = model.generate(**batch, max_new_tokens=40, do_sample=False)
    return tokenizer.batch_decode(tokens, skip_special_tokens=True)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        train(folder)
        for text in write(folder, ["from transformers ", "model", "def "]):
            print(repr(text))
