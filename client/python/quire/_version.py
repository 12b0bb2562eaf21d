# SPDX-License-Identifier: Apache-2.0
"""The version of the package. The programs have the same one (base/version.h)."""

VERSION = "0.1.0"
