# SPDX-License-Identifier: Apache-2.0
"""How a stream continues after its connection was lost. It makes no calls itself, so both clients use it."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from typing import Any

from quire import v1
from quire._call_policy import TAKEN_AFTER_S, CallPolicy, CallRequest
from quire._errors import Error


class Resumption:
    """The state of one stream: what to send in its next call. CallPolicy decides whether there is one. A call that was
    cut is resumed for `resume_time` seconds without progress, and not after `timeout`."""

    def __init__(self, request: Any, timeout: float, resume_time: float, num_managers: int = 1):
        self._request = copy.deepcopy(request)
        self._end = time.monotonic() + timeout
        self._policy = CallPolicy(_facts_of(request, self._end, resume_time, num_managers), TAKEN_AFTER_S)
        self._policy.begin(time.monotonic())
        self._token = ""  # The stream is resumed with it.
        self._positions: dict[int, Any] = {}  # What was received, by index.
        self._continued = {sample.index: copy.deepcopy(sample) for sample in self._request.continue_from}
        self._numerics, self._seed = "", None

    def next_call(self) -> tuple[str, Any, float]:
        """Returns the method to call, its request, and its timeout in seconds."""
        now = time.monotonic()
        self._policy.begin(now)
        left = max(0.0, self._end - now)
        if self._policy.has_token:
            resume = v1.ResumeRequest(resume_token=self._token, received=self._positions.values())
            return "Resume", resume, left
        if self._request.continue_from:
            self._set_continued()
        return "Generate", self._request, left

    def note(self, response: Any) -> None:
        """Takes the next response of the stream into account. Raises an error when it has tokens that were received."""
        received = self._positions.get(response.index)
        if received is not None and response.position < received.next_position:
            raise Error.internal(
                f"the manager has sent position {response.position} of sample {response.index} again, "
                f"the next one is {received.next_position}"
            )
        self._policy.note(response.index, bool(response.resume_token))
        index = response.index
        has_finish = response.finish_reason != v1.FINISH_REASON_UNSPECIFIED
        self._token = response.resume_token or self._token
        self._numerics = response.numerics_fingerprint or self._numerics
        if response.HasField("seed"):
            self._seed = (response.seed - index) % 2**64
        sample = self._positions.setdefault(index, v1.ReceivedSample(index=index))
        sample.next_position = response.position + len(response.token_ids)
        sample.has_finish = has_finish
        if response.HasField("numerics_changed_at"):
            sample.numerics_changed_at = response.numerics_changed_at
        if self._policy.keeps_tokens():
            continued = self._continued.setdefault(index, v1.ContinuedSample(index=index))
            continued.token_ids.extend(response.token_ids)
            continued.has_finish = has_finish
            # With a name, a request that outlives its call can be sent twice.
            if self._request.on_disconnect == v1.ON_DISCONNECT_DETACH and response.request_id:
                self._request.request_id = response.request_id

    def delay_after(self, error: Error, leave: Callable[[], None] = lambda: None) -> float:
        """A call has ended with `error`. Returns after how many seconds the next one may be made, or raises the error
        with which the stream ends. Calls `leave` if the manager of the call is not the one to ask next."""
        action = self._policy.after(error, time.monotonic())
        if action.kind == "without on_disconnect":
            self._request.ClearField("on_disconnect")
        elif action.kind == "continue":
            self._continue()
        return action.follow(leave)

    def _continue(self) -> None:
        """Makes the request one that continues its stream, which the manager does not know any more."""
        if self._seed is not None:
            self._request.sampling.seed = self._seed
        self._request.continue_numerics = self._numerics
        self._set_continued()

    def _set_continued(self) -> None:
        """Makes the request continue all that was received."""
        del self._request.continue_from[:]
        self._request.continue_from.extend(self._continued.values())
        # The new stream is only told of what changes behind these tokens.
        for sample in self._positions.values():
            sample.ClearField("numerics_changed_at")


def _facts_of(request: Any, deadline: float, resume_time: float, num_managers: int) -> CallRequest:
    return CallRequest(
        num_managers=num_managers,
        deadline=deadline,
        resume_time=resume_time,
        is_stream=True,
        has_on_disconnect=request.on_disconnect != v1.ON_DISCONNECT_UNSPECIFIED,
        is_detachable=request.on_disconnect == v1.ON_DISCONNECT_DETACH,
        is_named=bool(request.request_id),
        is_continued=len(request.continue_from) > 0,
        is_ranked=request.HasField("beam") or request.best_of > max(request.n, 1),
        has_prompt_logprobs=request.HasField("prompt_logprobs"),
    )
