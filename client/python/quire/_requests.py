# SPDX-License-Identifier: Apache-2.0
"""Requests from keyword arguments, and what comes back."""

from __future__ import annotations

import dataclasses
import difflib
import json
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar, Union

from quire import v1
from quire._checks import list_of, message_of, token_ids_of

if TYPE_CHECKING:
    from typing_extensions import Unpack

Prompt = Union[str, Sequence[int]]
Message = Union[Mapping[str, Any], "v1.ChatMessage"]
Stream = TypeVar("Stream")


class Options(TypedDict, total=False):
    """How to continue a prompt: fields of GenerateRequest, SamplingParams and StoppingParams, by their names. `guide`
    is the field `guided`. proto/quire/v1 has the range and the default of each."""

    temperature: float
    top_n_sigma: float
    top_k: int
    top_p: float
    min_p: float
    xtc_probability: float
    xtc_threshold: float
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    seed: int
    logit_bias: Mapping[int, float]
    allowed_token_ids: Iterable[int]
    bad_words: Iterable[str]
    max_tokens: int
    min_tokens: int
    ignore_eos: bool
    stop: Iterable[str]
    stop_token_ids: Iterable[int]
    include_stop: bool
    guide: v1.Guide
    request_id: str
    logprobs: int
    prompt_logprobs: int
    echo: bool
    add_special_tokens: bool
    skip_special_tokens: bool
    parse_special_tokens: bool
    priority: int
    n: int
    best_of: int
    beam: Union[v1.BeamParams, Mapping[str, Any]]
    cache_salt: str
    bypass_prefix_cache: bool
    pins: Iterable[Union[v1.PrefixPin, Mapping[str, Any]]]
    tenant: str


@dataclasses.dataclass
class Sample:
    """One sample or hypothesis that has ended."""

    index: int
    text: str = ""
    token_ids: list[int] = dataclasses.field(default_factory=list)
    logprobs: list[v1.PositionLogprobs] = dataclasses.field(default_factory=list)
    finish_reason: int = 0  # v1.FINISH_REASON_STOP, ...
    seed: int | None = None
    score: float | None = None
    numerics_changed_at: int | None = None


def _fields(message: Any) -> set[str]:
    return set(message.DESCRIPTOR.fields_by_name)


_SAMPLING, _STOPPING = _fields(v1.SamplingParams), _fields(v1.StoppingParams)
# What the client sets itself.
_OWN = {"text", "token_ids", "chat", "sampling", "stopping", "guided", "on_disconnect", "continue_from",
        "continue_numerics"}
_REQUEST = _fields(v1.GenerateRequest) - _OWN


def make_request(prompt: Prompt | None, chat: v1.Chat | None, options: Mapping[str, Any]) -> v1.GenerateRequest:
    """Returns a request that can be resumed. Raises TypeError or ValueError for an option that does not exist, and for
    what a request cannot hold; the manager checks the rest."""
    parts: dict[str, dict[str, Any]] = {"request": {}, "sampling": {}, "stopping": {}}
    for name, value in options.items():
        if value is None:
            continue
        if name == "guide":
            parts["request"]["guided"] = value
        elif name in _SAMPLING:
            parts["sampling"][name] = value
        elif name in _STOPPING:
            if name == "stop" and isinstance(value, str):
                raise TypeError("stop takes several texts, not one string")
            parts["stopping"][name] = value
        elif name in _REQUEST:
            parts["request"][name] = value
        else:
            near = difflib.get_close_matches(name, [*_SAMPLING, *_STOPPING, *_REQUEST, "guide"], 1)
            raise TypeError(f"there is no option {name}" + (f"; did you mean {near[0]}?" if near else ""))
    request = v1.GenerateRequest(
        sampling=_make(v1.SamplingParams, parts["sampling"]),
        stopping=_make(v1.StoppingParams, parts["stopping"]),
        # The request has a name and continues without its client, so that a call that was cut off can be resumed.
        on_disconnect=v1.ON_DISCONNECT_DETACH,
    )
    request.MergeFrom(_make(v1.GenerateRequest, parts["request"]))
    if not request.request_id:
        request.request_id = f"python-{uuid.uuid4()}"
    if chat is not None:
        request.chat.CopyFrom(chat)
    elif isinstance(prompt, str):
        request.text = prompt
    else:
        request.token_ids.CopyFrom(v1.TokenIds(ids=token_ids_of("prompt", prompt, "text or token ids")))
    return request


class EmbedOptions(TypedDict, total=False):
    """How to embed texts: fields of EmbedRequest, by their names."""

    dimensions: int
    normalize: bool
    add_special_tokens: bool
    parse_special_tokens: bool
    priority: int
    cache_salt: str
    bypass_prefix_cache: bool
    tenant: str


def make_embed_request(inputs: str | Iterable[Prompt], options: Mapping[str, Any]) -> v1.EmbedRequest:
    """Returns the request for these inputs. Raises TypeError or ValueError as make_request does."""
    several = [inputs] if isinstance(inputs, str) else list_of("inputs", inputs, "a list of texts or of token ids")
    known = _fields(v1.EmbedRequest) - {"inputs"}
    for name in options:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            raise TypeError(f"there is no option {name}" + (f"; did you mean {near[0]}?" if near else ""))
    request: v1.EmbedRequest = _make(v1.EmbedRequest, {name: o for name, o in options.items() if o is not None})
    for i, one in enumerate(several):
        if isinstance(one, str):
            request.inputs.add(text=one)
        else:
            request.inputs.add(token_ids=v1.TokenIds(ids=token_ids_of(f"inputs[{i}]", one, "text or token ids")))
    return request


def _make(kind: Any, fields: Mapping[str, Any]) -> Any:
    """Returns a message. The errors of protobuf do not name the field that is wrong, so this adds the name."""
    made = kind()
    for name, value in fields.items():
        try:
            made.MergeFrom(kind(**{name: value}))
        except (TypeError, ValueError) as error:
            raise type(error)(f"the option {'guide' if name == 'guided' else name}: {error}") from None
    return made


def make_chat(
    messages: Iterable[Message], tools: Sequence[Mapping[str, Any]] | str, template: Mapping[str, Any]
) -> v1.Chat:
    """Returns a conversation. `template` has further variables of the chat template."""
    several = list_of("messages", messages, 'a list of messages such as {"role": "user", "content": "Hi"}')
    return v1.Chat(
        messages=[message_of(v1.ChatMessage, f"messages[{i}]", m) for i, m in enumerate(several)],
        tools=tools if isinstance(tools, str) else json.dumps(tools),
        template_kwargs=json.dumps(template) if template else "",
    )


class Collector:
    """Joins the responses of a stream to whole samples."""

    def __init__(self) -> None:
        self._samples: dict[int, Sample] = {}

    def add(self, response: v1.GenerateResponse) -> None:
        sample = self._samples.setdefault(response.index, Sample(response.index))
        sample.text += response.text_delta
        sample.token_ids.extend(response.token_ids)
        sample.logprobs.extend(response.logprobs)
        sample.finish_reason = response.finish_reason or sample.finish_reason
        for name in ("seed", "score", "numerics_changed_at"):
            if response.HasField(name):
                setattr(sample, name, getattr(response, name))

    def samples(self) -> list[Sample]:
        return [self._samples[index] for index in sorted(self._samples)]


class Prompts(Generic[Stream]):
    """What both clients make of a prompt or of a conversation: a stream of the responses."""

    def stream(self, request: v1.GenerateRequest, *, timeout: float = 300.0, resume_time: float = 30.0) -> Stream:
        raise NotImplementedError

    def generate(self, prompt: Prompt, *, timeout: float = 300.0, **options: Unpack[Options]) -> Stream:
        """Yields the responses for a prompt, which is text or token ids, as they come. See `stream`."""
        return self.stream(make_request(prompt, None, options), timeout=timeout)

    def chat(
        self,
        messages: Iterable[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | str = "",
        template: Mapping[str, Any] | None = None,
        timeout: float = 300.0,
        **options: Unpack[Options],
    ) -> Stream:
        """Yields the responses for a conversation. A message is a map such as {"role": "user", "content": "Hi"}, and
        `template` has further variables of the chat template."""
        return self.stream(make_request(None, make_chat(messages, tools, template or {}), options), timeout=timeout)
