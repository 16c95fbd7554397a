// SPDX-License-Identifier: Apache-2.0
// The untemplated part of reading JSON configs: parsing, suggestions and error messages.
#include "files/json_fields.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "files/quote.h"

namespace hkt::fields {
namespace {

std::size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

// Values are untrusted: the text stays short, and bytes that are not UTF-8 do not throw another exception.
std::string shown(const Json& value) {
  constexpr std::size_t longest = 60;
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() <= longest ? text : text.substr(0, longest) + "…";
}

// nlohmann's messages begin with an error code in brackets, which is of no use to users.
std::string without_code(const std::string& message) {
  const auto end = message.find("] ");
  return end == std::string::npos ? message : message.substr(end + 2);
}

// Builds a value from the parser's events. nlohmann's own builder with a callback searches the whole object after each of
// its members, so that a header of 50,000 tensors took half a minute.
class Builder : public nlohmann::json_sax<Json> {
 public:
  Builder(Json& result, const std::string& what) : result_(result), what_(what) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(number_integer_t value) override { return add(value); }
  bool number_unsigned(number_unsigned_t value) override { return add(value); }
  bool number_float(number_float_t value, const string_t&) override { return add(value); }
  bool string(string_t& value) override { return add(std::move(value)); }
  bool binary(binary_t& value) override { return add(std::move(value)); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    const auto [place, is_new] = open_.back()->emplace(name, nullptr);
    if (!is_new) throw std::invalid_argument(what_ + " has the key " + shown(name) + " twice in one object.");
    member_ = &*place;
    return true;
  }

  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    constexpr std::size_t longest = 240;  // it quotes the last token, which may be all of a file
    const auto message = without_code(error.what());
    throw std::invalid_argument(what_ + " is not JSON: " + printable(message.substr(0, longest)) +
                                (message.size() > longest ? "…" : "."));
  }

 private:
  Json* place(Json value) {
    Json* where = &result_;
    if (!open_.empty() && open_.back()->is_array()) {
      open_.back()->push_back(std::move(value));
      return &open_.back()->back();
    }
    if (!open_.empty()) where = member_;
    *where = std::move(value);
    return where;
  }
  bool add(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json empty) {
    constexpr std::size_t deepest = 64;  // reading, printing or freeing deeper ones would overflow the stack
    if (open_.size() >= deepest) throw std::invalid_argument(what_ + " is nested more than 64 deep.");
    open_.push_back(place(std::move(empty)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  Json& result_;
  const std::string& what_;
  // The open objects and arrays, innermost last. The pointers stay valid: a value moves only when the array around it grows,
  // and then the value is closed already.
  std::vector<Json*> open_;
  Json* member_ = nullptr;  // where the value of the last key goes
};

}  // namespace

Json parse(std::string_view text, const std::string& what) {
  Json result;
  Builder builder(result, what);
  Json::sax_parse(text.begin(), text.end(), &builder);
  return result;
}

std::string dump(const OrderedJson& json, int indent) {
  return json.dump(indent, ' ', false, OrderedJson::error_handler_t::replace);
}

std::string nearest(const std::string& name, const std::vector<std::string>& known) {
  // Known names are shorter than this, and the time of edit_distance grows with the product of the lengths.
  constexpr std::size_t longest = 64;
  const std::string head = name.substr(0, longest);
  return *std::min_element(known.begin(), known.end(), [&](const std::string& a, const std::string& b) {
    return edit_distance(head, a) < edit_distance(head, b);
  });
}

void refuse_value(const std::string& key, const Json& value, const std::string& allowed) {
  throw std::invalid_argument(key + " is " + shown(value) + "; it must be " + allowed + ".");
}

void refuse_key(const std::string& where, const std::string& key, const std::vector<std::string>& known) {
  throw std::invalid_argument(where + " has the unknown key " + shown(Json(key)) + "; the nearest known one is \"" +
                              nearest(key, known) + "\".");
}

std::int64_t read_integer(const std::string& key, const Json& value, std::int64_t low, std::int64_t high) {
  if (!is_integer(value, low, high)) {
    refuse_value(key, value, "an integer from " + std::to_string(low) + " to " + std::to_string(high));
  }
  return value.get<std::int64_t>();
}

std::string quoted_list(const std::vector<std::string>& names) {
  std::string list;
  for (const auto& name : names) list += (list.empty() ? "\"" : ", \"") + name + "\"";
  return list;
}

}  // namespace hkt::fields
