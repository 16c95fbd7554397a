// SPDX-License-Identifier: Apache-2.0
// Timing, memory measurement and tables of the benchmarks.
#include "harness.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <sstream>

namespace hkt::bench {
namespace {

double run(const std::function<void()>& work, int repeats, const std::function<void()>& finish) {
  finish();
  const auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < repeats; ++i) work();
  finish();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / repeats;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

}  // namespace

Timings::Timings(const std::vector<Candidate>& candidates, int rounds, const std::function<void()>& finish)
    : samples_(candidates.size()) {
  constexpr double sample_seconds = 0.01;
  std::vector<int> repeats;
  for (const auto& candidate : candidates) {
    names_.push_back(candidate.name);
    candidate.work();
    repeats.push_back(std::max(1, static_cast<int>(sample_seconds / run(candidate.work, 1, finish))));
  }
  for (int round = 0; round < rounds; ++round)
    for (size_t i = 0; i < candidates.size(); ++i) {
      if (repeats[i] > 1) candidates[i].work();  // warms the caches with its own data
      samples_[i].push_back(run(candidates[i].work, repeats[i], finish));
    }
}

const std::vector<double>& Timings::of(const std::string& name) const {
  return samples_.at(std::find(names_.begin(), names_.end(), name) - names_.begin());
}
bool Timings::has(const std::string& name) const {
  return std::find(names_.begin(), names_.end(), name) != names_.end();
}
double Timings::seconds(const std::string& name) const { return median(of(name)); }
double Timings::ratio(const std::string& name, const std::string& to) const {
  std::vector<double> ratios;
  for (size_t i = 0; i < of(name).size(); ++i) ratios.push_back(of(name)[i] / of(to)[i]);
  return median(ratios);
}

Table::Table(std::string title, std::vector<std::string> columns)
    : title_(std::move(title)), columns_(std::move(columns)) {
  std::cout << "\n### " << title_ << "\n\n" << markdown(columns_, {}) << std::flush;
}

void Table::add(const std::vector<std::string>& cells) {
  rows_.push_back(cells);
  for (const auto& cell : cells) std::cout << "| " << cell << " ";
  std::cout << "|" << std::endl;
}

nlohmann::json Table::json() const { return {{"title", title_}, {"columns", columns_}, {"rows", rows_}}; }

std::string markdown(const std::vector<std::string>& columns, const std::vector<std::vector<std::string>>& rows) {
  std::ostringstream text;
  for (const auto& column : columns) text << "| " << column << " ";
  text << "|\n";
  for (size_t i = 0; i < columns.size(); ++i) text << "|---";
  text << "|\n";
  for (const auto& row : rows) {
    for (const auto& cell : row) text << "| " << cell << " ";
    text << "|\n";
  }
  return text.str();
}

std::string number(double value, int digits) {
  std::ostringstream text;
  text.setf(std::ios::fixed);
  text.precision(digits);
  text << value;
  return text.str();
}

}  // namespace hkt::bench
