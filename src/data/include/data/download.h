// SPDX-License-Identifier: Apache-2.0
// Downloads with retries that resume where the last attempt ended.
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
  std::string digest;                               // that it must have: MD5, SHA-1 or SHA-256
  std::int64_t most_bytes = std::int64_t{1} << 32;  // the file's size if known, otherwise an upper limit

  // Timeouts and retries. A connection that delivers less than slowest · stall bytes within `stall` is closed, and the
  // attempt counts as failed. `attempts` is the number of failures in a row after which to give up.
  std::chrono::seconds connect{20};
  std::chrono::seconds stall{30};
  std::int64_t slowest = 4096;  // bytes a second
  int attempts = 4;
  std::chrono::milliseconds first_wait{500};  // doubled each time
};

// Received bytes are kept in target + ".part" until the file is complete and its digest is right; a later call resumes there.
// Throws std::runtime_error, in one sentence, if the server, the network or the disk fails for good, if another process is
// downloading the same file, if the server sends more than most_bytes or too slowly, and if the digest is wrong, in which
// case the file is removed.
void download(const Download& download, const Notify& notify = {});

}  // namespace hkt::data
