// SPDX-License-Identifier: Apache-2.0

// A library that cannot be loaded, because a library that it needs is missing.

extern "C" int quire_stand_in();

extern "C" int quire_needs_stand_in() {
  return quire_stand_in();
}
