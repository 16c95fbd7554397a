// Downloads that survive bad connections.
#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "data/dataset.h"

namespace hkt::data {

struct Download {
  std::string url;
  std::filesystem::path target;
  std::string md5;  // in small hexadecimal digits

  // How long to wait for what, and how often to try without getting further.
  std::chrono::seconds connect{20};
  std::chrono::seconds stall{30};
  int attempts = 4;
  std::chrono::milliseconds first_wait{500};  // doubled each time
};

// What has come lies in target + ".part" until all of it is there and its MD5 is right; a later call goes on from there.
// Throws std::runtime_error, in one sentence, when the server or the network fails for good, when the disk does, when
// another process downloads the same, and when the file is not the right one, which is then removed.
void download(const Download& download, const Notify& notify = {});

}  // namespace hkt::data
