# SPDX-License-Identifier: Apache-2.0
"""Whether a call is made again. client/policy/call_policy.h has the same class and explains it; tests/golden/calls has
the decisions of both. Times are seconds of any clock, always the same one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from quire._errors import Error

FIRST_DELAY_S = 0.1
LONGEST_DELAY_S = 0.5
# A call of this duration was taken by a manager, also if it has sent no response yet: a search sends one at its end.
TAKEN_AFTER_S = 2.0
# Numbers of fields of GenerateRequest.
_ON_DISCONNECT, _CONTINUE_FROM = 19, 20
_NEVER = float("inf")


@dataclasses.dataclass
class CallRequest:
    """What is known of a call before it is made."""

    num_managers: int = 1
    deadline: float = _NEVER
    resume_time: float = _NEVER
    is_stream: bool = False
    has_on_disconnect: bool = False
    is_detachable: bool = False
    is_named: bool = False
    is_continued: bool = False
    is_ranked: bool = False
    has_prompt_logprobs: bool = False


@dataclasses.dataclass
class CallAction:
    """What to do after a call has failed. `kind` is "stop", "again", "ask next", "resume", "continue" or "without
    on_disconnect"."""

    kind: str
    error: Error
    delay: float = 0.0
    leaves: bool = False

    def follow(self, leave: Callable[[], None]) -> float:
        """Calls `leave` if later calls go to the next manager. Returns after how many seconds the next call may be
        made, or raises the error."""
        if self.leaves:
            leave()
        if self.kind == "stop":
            raise self.error from None
        return self.delay


class CallPolicy:
    def __init__(self, request: CallRequest, taken_after: float = TAKEN_AFTER_S):
        self._request, self._taken_after = request, taken_after
        self._call_began = _NEVER
        self.has_token = False  # The next call resumes the stream with its token.
        self._has_received = self._has_first_sample = self._may_have_begun = False
        self._num_asked, self._has_standby = 0, False
        self._lost_at, self._delay = _NEVER, 0.0
        self._told: Error | None = None
        self._unknown: Error | None = None

    def begin(self, now: float) -> None:
        self._call_began = now

    def note(self, index: int, has_token: bool) -> None:
        self._told, self._lost_at = None, _NEVER
        self.has_token |= has_token and self._request.is_detachable
        self._has_received = True
        self._has_first_sample |= index == 0

    def after(self, end: Error, now: float) -> CallAction:
        request = self._request
        if request.is_stream and now - self._call_began >= self._taken_after and not end.is_unreached():
            self._told, self._lost_at = None, _NEVER
        changed = self._change_request(end)
        if changed is not None:
            return changed

        self._may_have_begun |= end.is_cut() and not end.is_unreached()
        # After a loss, another manager may answer at the same address.
        stands_by = (request.num_managers > 1 or self._is_lost()) and end.is_not_leading()
        is_left = stands_by or (end.is_cut() and not end.is_restoring())
        leaves = is_left if request.is_stream else end.is_of_no_leader()
        is_unbegun = stands_by or end.is_unreached() or (not request.is_stream and end.is_of_no_leader())
        is_search = request.num_managers > 1 and not self._has_received and is_unbegun
        asks_next = is_search and self._searches(end, stands_by)
        is_round = self._num_asked % request.num_managers == 0

        # A manager that has just started waits for its workers, or has not noticed yet that the call before was cut.
        is_running = self._is_lost() and not request.is_detachable and end.reason == "REQUEST_RUNNING"
        is_late = request.is_continued and (end.reason == "NO_WORKER" or is_running)
        is_starting = (end.is_restoring() and not self._has_received) or is_late
        if not asks_next and not is_starting and not ((stands_by or end.is_cut()) and self._may_repeat()):
            return self._stop(end, leaves)

        if not self._is_lost():
            self._lost_at, self._delay = now, FIRST_DELAY_S
        self._told = self._told or end
        if end.is_restoring():
            self._delay = FIRST_DELAY_S  # It takes no longer than the workers need to answer.
        delay = 0.0 if asks_next and not is_round else self._delay
        if now + max(delay, FIRST_DELAY_S) >= min(request.deadline, self._lost_at + request.resume_time):
            return self._stop(end, leaves)
        if delay > 0.0:
            self._delay = min(2 * self._delay, LONGEST_DELAY_S if request.is_stream else FIRST_DELAY_S)
        kind = "ask next" if asks_next else "resume" if self.has_token else "again"
        return CallAction(kind, self._told, delay, leaves)

    def keeps_tokens(self) -> bool:
        return (self._request.is_detachable or self._request.is_continued) and not self._request.is_ranked

    def _is_lost(self) -> bool:
        return self._lost_at != _NEVER

    def _change_request(self, end: Error) -> CallAction | None:
        request = self._request
        if request.has_on_disconnect and end.is_unknown_field(_ON_DISCONNECT):
            request.has_on_disconnect = request.is_detachable = False
            return CallAction("without on_disconnect", end)
        if self.has_token and end.reason == "REQUEST_UNKNOWN" and self._may_continue():
            self._unknown, self.has_token, request.is_continued = end, False, True
            return CallAction("continue", end)
        if self._unknown is not None and end.is_unknown_field(_CONTINUE_FROM):
            return CallAction("stop", self._unknown)
        return None

    def _searches(self, end: Error, stands_by: bool) -> bool:
        keeps_told = self._told is not None and (self._request.is_stream or self._told.is_from_manager)
        if stands_by or not keeps_told:
            self._told = end
        self._has_standby |= stands_by
        self._num_asked += 1
        if self._num_asked % self._request.num_managers != 0:
            return True
        had_standby, self._has_standby = self._has_standby, False
        return had_standby

    def _may_continue(self) -> bool:
        has_first = self._has_first_sample or self._request.is_continued
        return self.keeps_tokens() and (has_first or not self._request.has_prompt_logprobs)

    def _may_repeat(self) -> bool:
        if self.has_token or self._request.is_continued:
            return True
        # A manager that lets no request outlive its call has sent responses without a token.
        if self._has_received or not self._request.is_detachable or not self._request.is_named:
            return False
        # When no connection could be made at all, the request has not begun, and the user should hear of it soon.
        return self._may_have_begun

    def _stop(self, end: Error, leaves: bool) -> CallAction:
        # What has failed first says more than the attempts to connect again.
        told = end if self._told is None or end.is_from_manager else self._told
        return CallAction("stop", told, leaves=leaves)
