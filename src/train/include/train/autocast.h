// SPDX-License-Identifier: Apache-2.0
// Autocast for the length of a scope.
#pragma once

#include <ATen/autocast_mode.h>

namespace hkt::train {

// Autocast to bfloat16 while it lives, if it is wanted.
class Autocast {
 public:
  Autocast(bool wanted, at::Device device) : wanted_(wanted), device_(device.type()) {
    if (!wanted_) return;
    at::autocast::set_autocast_dtype(device_, at::kBFloat16);
    at::autocast::set_autocast_enabled(device_, true);
    at::autocast::increment_nesting();
  }
  ~Autocast() {
    if (!wanted_) return;
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, false);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  bool wanted_;
  at::DeviceType device_;
};

}  // namespace hkt::train
