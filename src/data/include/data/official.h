// SPDX-License-Identifier: Apache-2.0
// The data sets that have an official home: where that is, and where their archives lie here.
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
  std::string home;  // for people
  std::string url, md5;
  std::int64_t bytes;
};

const std::vector<Official>& official();
const Official& official(Task task);

// Where the downloaded archive lies, or would.
std::filesystem::path archive_of(const Official& set);
// The MD5 that it must have: the one that it was downloaded with, else the official one.
std::string md5_of(const Official& set);

// Downloads the archive, unless it is there and whole: then false. `url` and `md5` name another home and what it has
// there; empty ones mean the official. Throws std::runtime_error as download() does.
bool fetch(const Official& set, const std::string& url, const std::string& md5, const Notify& notify = {});

}  // namespace hkt::data
