// SPDX-License-Identifier: Apache-2.0
// Downloads that survive bad connections.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <string>

#include "data/dataset.h"

namespace hkt::data {

struct Download {
  std::string url;
  std::filesystem::path target;
  std::string md5;                                  // in small hexadecimal digits
  std::int64_t most_bytes = std::int64_t{1} << 32;  // of the file: its size where that is known

  // How long to wait for what, and how often to try without getting further: a connection that brings less than
  // slowest · stall bytes in that time is ended, and counts as one that brought nothing.
  std::chrono::seconds connect{20};
  std::chrono::seconds stall{30};
  std::int64_t slowest = 4096;  // bytes a second
  int attempts = 4;
  std::chrono::milliseconds first_wait{500};  // doubled each time
};

// What has come lies in target + ".part" until all of it is there and its MD5 is right; a later call goes on from there.
// Throws std::runtime_error, in one sentence, when the server or the network fails for good, when the disk does, when
// another process downloads the same, when the server sends more than most_bytes or too slowly, and when the file is not the
// right one, which is then removed.
void download(const Download& download, const Notify& notify = {});

}  // namespace hkt::data
