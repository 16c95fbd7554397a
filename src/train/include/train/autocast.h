// SPDX-License-Identifier: Apache-2.0
// Autocast for the duration of a scope.
#pragma once

#include <ATen/autocast_mode.h>

namespace hkt::train {

// Autocast to bfloat16 during the lifetime of the object, if enabled.
class Autocast {
 public:
  Autocast(bool enabled, at::Device device) : enabled_(enabled), device_(device.type()) {
    if (!enabled_) return;
    at::autocast::set_autocast_dtype(device_, at::kBFloat16);
    at::autocast::set_autocast_enabled(device_, true);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (!enabled_) return;
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, false);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool enabled_;
  at::DeviceType device_;
};

}  // namespace hkt::train
