// SPDX-License-Identifier: Apache-2.0

// A library that is not Quire's library for GPUs.

extern "C" int quire_stand_in() {
  return 1;
}
