# SPDX-License-Identifier: Apache-2.0
"""The messages, enums and values of quire.v1, as proto/quire/v1 declares them: v1.GenerateRequest, v1.Guide, ..."""

from quire import _wire

globals().update(_wire.names_of("quire.v1"))
