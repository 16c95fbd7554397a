// SPDX-License-Identifier: Apache-2.0
// Marks the symbols that the libraries export; all others are hidden.
#pragma once

#define HKT_EXPORT __attribute__((visibility("default")))
