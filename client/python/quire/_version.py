# SPDX-License-Identifier: Apache-2.0
"""The version of the package. It is that of the programs (base/version.h)."""

VERSION = "0.1.0"
