# SPDX-License-Identifier: Apache-2.0
"""How a stream goes on after its connection was lost. It makes no calls itself, so both clients use it."""

from __future__ import annotations

import copy
import time
from typing import Any, NoReturn

from quire import v1
from quire._errors import Error

FIRST_DELAY_S = 0.1
LONGEST_DELAY_S = 0.5
# A call that has lasted for so long was taken by a manager, also if it has sent no response yet: a search sends one at
# its end.
TAKEN_AFTER_S = 2.0


class Resumption:
    """The state of one stream.

    If on_disconnect of the request is DETACH and it has a request_id, a call that was cut is resumed for `resume_time`
    seconds without progress, and not after `timeout`. A call that a manager has taken is progress. A request that the
    manager does not know any more is continued from what was received, unless it is a beam search or has best_of above
    n. A request with continue_from is sent again after a cut, with all that was received. The stream of another request
    ends with its call. With several managers, every call after an error goes to the next one, and any request that none
    has begun is also sent again.
    """

    def __init__(self, request: Any, timeout: float, resume_time: float, num_managers: int = 1):
        self._request = copy.deepcopy(request)
        self._end = time.monotonic() + timeout
        self._resume_time = resume_time
        self._token = ""  # The stream is resumed with it.
        self._positions: dict[int, Any] = {}  # What was received, by index.
        self._continued = {sample.index: copy.deepcopy(sample) for sample in self._request.continue_from}
        self._numerics, self._seed = "", None
        self._cut: Error | None = None  # How the connection was lost, until a manager takes another call.
        self._unknown: Error | None = None  # Why the request is being continued.
        self._give_up = self._delay = 0.0
        self._call_began = time.monotonic()
        self._may_have_begun = False  # A manager may have the request, though none has answered.
        self._num_managers = num_managers
        self._num_left = 0  # Managers that were left one after the other without a response.
        self._has_standby = False  # One of the last ones stands by or stops.

    def next_call(self) -> tuple[str, Any, float]:
        """Returns the method to call, its request, and its timeout in seconds."""
        self._call_began = time.monotonic()
        left = max(0.0, self._end - self._call_began)
        if self._token:
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
        self._cut = None
        self._num_left, self._has_standby = 0, False
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
        if self._may_continue():
            continued = self._continued.setdefault(index, v1.ContinuedSample(index=index))
            continued.token_ids.extend(response.token_ids)
            continued.has_finish = has_finish

    def delay_after(self, error: Error) -> float:
        """A call has ended with `error`. Returns after how many seconds the next one may be made, or raises the error
        with which the stream ends."""
        if time.monotonic() - self._call_began >= TAKEN_AFTER_S and not error.is_unreached():
            self._cut = None
        if error.is_unknown_field(_number_of("on_disconnect")):
            self._request.ClearField("on_disconnect")
            return 0.0
        if self._token and error.reason == "REQUEST_UNKNOWN" and self._continue():
            self._unknown = error
            return 0.0
        if self._unknown is not None and error.is_unknown_field(_number_of("continue_from")):
            raise self._unknown
        # While the manager restores, a request that it does not know has not been started by it either. A manager that
        # has just started waits for its workers.
        is_continued = len(self._request.continue_from) > 0
        is_starting = error.reason == "RESTORING" or (is_continued and error.reason == "NO_WORKER")
        self._may_have_begun |= is_starting
        stands_by = self._num_managers > 1 and error.is_not_leading()
        is_next = self._num_managers > 1 and not self._positions and (stands_by or error.is_unreached())
        if is_next:
            self._num_left += 1
            self._has_standby |= stands_by
        # When all were asked and one of them stands by or stops, one will lead soon.
        is_round = is_next and self._num_left % self._num_managers == 0
        asks_next = is_next and (not is_round or self._has_standby)
        may_repeat = asks_next or is_starting or ((stands_by or error.is_cut()) and self._may_repeat(error))
        if not may_repeat:
            self._raise(error)
        if self._cut is None:
            self._cut, self._delay = error, FIRST_DELAY_S
            self._give_up = min(self._end, time.monotonic() + self._resume_time)
        if is_next and not is_round:
            return 0.0
        self._has_standby = False
        if error.reason == "RESTORING":
            self._delay = FIRST_DELAY_S  # It takes no longer than the workers need to answer.
        if time.monotonic() + self._delay >= self._give_up:
            raise self._cut
        delay, self._delay = self._delay, min(2 * self._delay, LONGEST_DELAY_S)
        return delay

    def _raise(self, error: Error) -> NoReturn:
        # What has failed first says more than the attempts to connect again.
        raise self._cut if self._cut is not None and not error.is_from_manager else error

    def _may_repeat(self, error: Error) -> bool:
        if self._token or self._request.continue_from:
            return True
        # A manager that lets no request outlive its call has sent responses without a token.
        if self._positions or self._request.on_disconnect != v1.ON_DISCONNECT_DETACH:
            return False
        # When no connection could be made at all, the request has not begun, and the user should hear of it soon.
        self._may_have_begun |= error.is_cut() and not error.is_unreached()
        return self._may_have_begun

    def _may_continue(self) -> bool:
        """Returns whether the stream may have to go on as another request, which needs the tokens that were received.
        A beam search cannot, and neither can samples of which the best ones are chosen in the end."""
        request = self._request
        is_ranked = request.HasField("beam") or request.best_of > max(request.n, 1)
        # A request with continue_from is sent again after a cut, also without on_disconnect.
        is_kept = request.on_disconnect == v1.ON_DISCONNECT_DETACH or len(request.continue_from) > 0
        return is_kept and not is_ranked

    def _continue(self) -> bool:
        """Makes the request one that continues its stream, which the manager does not know any more."""
        request = self._request
        has_all = bool(self._continued) and (not request.HasField("prompt_logprobs") or 0 in self._continued)
        if not has_all or not self._may_continue():
            return False
        self._token = ""
        if self._seed is not None:
            request.sampling.seed = self._seed
        request.continue_numerics = self._numerics
        self._set_continued()
        return True

    def _set_continued(self) -> None:
        """Makes the request continue all that was received."""
        del self._request.continue_from[:]
        self._request.continue_from.extend(self._continued.values())
        # The new stream is only told of what changes behind these tokens.
        for sample in self._positions.values():
            sample.ClearField("numerics_changed_at")


def _number_of(field: str) -> int:
    return v1.GenerateRequest.DESCRIPTOR.fields_by_name[field].number
