// SPDX-License-Identifier: Apache-2.0
// The data sets with an official download: its address, and where the archive is stored here.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "data/dataset.h"

namespace hkt::data {

struct Official {
  Task task;
  std::string name;
  std::string what;
  std::string home;               // web page
  std::string url, file, digest;  // of the archive: its address, its name here, its SHA-256 or MD5
  std::int64_t bytes;
};

const std::vector<Official>& official();
const Official& official(Task task);

// Where the downloaded archive is or would be.
std::filesystem::path archive_of(const Official& set);
// The digest it must have: the one given when it was downloaded, otherwise the official one.
std::string digest_of(const Official& set);

// Downloads the archive; returns false if it is already here with the right digest. A non-empty `url` or `md5` replaces
// the official one. Throws std::runtime_error as download() does.
bool fetch(const Official& set, const std::string& url, const std::string& md5, const Notify& notify = {});

}  // namespace hkt::data
