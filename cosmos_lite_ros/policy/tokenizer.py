# Copyright 2026 The cosmos_lite_ros authors
# SPDX-License-Identifier: Apache-2.0
"""From a prompt to token ids: chat template, then EOS and the start-of-generation token, no BOS."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from cosmos_lite_ros.contract.prompt import Family
from cosmos_lite_ros.errors import CheckpointError

# Edge's bare tokenizer calls id 20 <SPECIAL_20>: adding "<|vision_start|>" by name would create an
# id beyond the embedding.
_EDGE_EOS_ID = 11
_EDGE_START_ID = 20
_START_NAME = "<|vision_start|>"


def _raise_exception(message: str) -> None:
    raise CheckpointError(f"the chat template refuses the prompt: {message}")


class PromptTokenizer:
    """Token ids of prompts, for one checkpoint.

    Raises:
        CheckpointError: missing files, or special tokens other than the family's.
    """

    def __init__(self, folder: Path, family: Family, vocab_size: int):
        """``folder`` holds tokenizer.json, tokenizer_config.json and chat_template.jinja."""
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise CheckpointError(f"{path} is missing: the checkpoint is incomplete")
        try:
            self._tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # tokenizers raises bare Exception
            raise CheckpointError(f"{path} cannot be read: {error}") from error
        config = self._read_config(folder)
        # "}-%}" style templates are written for these two settings (Hugging Face chat templates).
        environment = ImmutableSandboxedEnvironment(
            trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols"]
        )
        environment.globals["raise_exception"] = _raise_exception
        environment.filters["tojson"] = lambda value, **kw: json.dumps(
            value, ensure_ascii=False, **kw
        )
        self._template = environment.from_string(self._read_template(folder, config))
        self._special = {
            name: _token_text(config[name])
            for name in ("bos_token", "eos_token", "pad_token", "unk_token")
            if config.get(name) is not None
        }
        self.vocab_size = vocab_size
        self.eos_id, self.start_id = self._closing_ids(family)

    @staticmethod
    def _read_config(folder: Path) -> dict[str, Any]:
        path = folder / "tokenizer_config.json"
        if not path.is_file():
            return {}
        try:
            loaded = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise CheckpointError(f"{path} is not JSON: {error}") from error
        return loaded if isinstance(loaded, dict) else {}

    @staticmethod
    def _read_template(folder: Path, config: dict[str, Any]) -> str:
        path = folder / "chat_template.jinja"
        if path.is_file():
            return path.read_text(encoding="utf-8")
        template = config.get("chat_template")
        if isinstance(template, str):
            return template
        raise CheckpointError(
            f"{folder} has neither chat_template.jinja nor a chat_template in "
            "tokenizer_config.json: the checkpoint is incomplete"
        )

    def _closing_ids(self, family: Family) -> tuple[int, int]:
        """EOS and start-of-generation ids, checked against the family and the embedding."""
        eos_text = self._special.get("eos_token")
        eos = None if eos_text is None else self._tokenizer.token_to_id(eos_text)
        start = self._tokenizer.token_to_id(_START_NAME)
        if family == "edge":
            if start is None and self._tokenizer.id_to_token(_EDGE_START_ID) is not None:
                start = _EDGE_START_ID
            if eos != _EDGE_EOS_ID or start != _EDGE_START_ID:
                raise CheckpointError(
                    f"the Edge tokenizer has EOS id {eos} and start-of-generation id {start}, "
                    f"expected {_EDGE_EOS_ID} and {_EDGE_START_ID}: these are another model's files"
                )
        if eos is None or start is None:
            raise CheckpointError(
                f"the tokenizer lacks its EOS token {eos_text!r} or {_START_NAME!r}: these are "
                "another model's files"
            )
        if max(eos, start) >= self.vocab_size:
            raise CheckpointError(
                f"special token ids {eos} and {start} do not fit the embedding of "
                f"{self.vocab_size} rows: tokenizer and weights belong to different models"
            )
        return eos, start

    def render(self, prompt: str) -> str:
        """The chat-template text: one user message, generation prompt added, no system message."""
        messages = [{"role": "user", "content": prompt}]
        return self._template.render(messages=messages, add_generation_prompt=True, **self._special)

    def encode(self, prompt: str) -> list[int]:
        """Token ids including EOS and the start-of-generation token.

        Raises:
            CheckpointError: an id beyond the embedding.
        """
        ids = list(self._tokenizer.encode(self.render(prompt), add_special_tokens=False).ids)
        ids += [self.eos_id, self.start_id]
        if max(ids) >= self.vocab_size:
            raise CheckpointError(
                f"token id {max(ids)} is beyond the embedding of {self.vocab_size} rows: tokenizer "
                "and weights belong to different models"
            )
        return ids


def _token_text(value: object) -> str:
    """A special token is a string, or a mapping with its text under ``content``."""
    if isinstance(value, dict):
        return str(value.get("content", ""))
    return str(value)
