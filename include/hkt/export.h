// SPDX-License-Identifier: Apache-2.0
// What libhkt shows to its users; everything else is hidden.
#pragma once

#define HKT_EXPORT __attribute__((visibility("default")))
