// SPDX-License-Identifier: Apache-2.0
// Digests by libcrypto.
#include "data/digest.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <stdexcept>
#include <vector>

#include "files/quote.h"
#include "files/regular_file.h"

namespace hkt::data {
namespace {

constexpr std::string_view hexadecimal = "0123456789abcdef";

struct Kind {
  const char* name;
  std::size_t digits;
  const EVP_MD* (*function)();
};
constexpr std::array<Kind, 3> kinds = {{{"MD5", 32, EVP_md5}, {"SHA-1", 40, EVP_sha1}, {"SHA-256", 64, EVP_sha256}}};

const Kind& of(Digest kind) { return kinds.at(static_cast<std::size_t>(kind)); }

class Sum {
 public:
  explicit Sum(Digest kind) : kind_(of(kind)), context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) {
    check(EVP_DigestInit_ex(context_.get(), kind_.function(), nullptr));
  }

  void add(const void* bytes, std::size_t size) { check(EVP_DigestUpdate(context_.get(), bytes, size)); }

  std::string hex() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> sum = {};
    unsigned size = 0;
    check(EVP_DigestFinal_ex(context_.get(), sum.data(), &size));
    std::string text;
    for (unsigned i = 0; i < size; ++i) text += {hexadecimal[sum[i] / 16], hexadecimal[sum[i] % 16]};
    return text;
  }

 private:
  void check(int done) const {
    if (done == 1) return;
    throw std::runtime_error(std::string("libcrypto could not compute a digest (") + kind_.name +
                             "); it may be disabled (FIPS mode).");
  }

  const Kind& kind_;
  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

}  // namespace

std::string name_of(Digest kind) { return of(kind).name; }

Digest kind_of(std::string_view digest) {
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    const bool plain = digest.find_first_not_of(hexadecimal) == std::string_view::npos;
    if (plain && digest.size() == kinds[i].digits) return static_cast<Digest>(i);
  }
  throw std::invalid_argument("the digest is " + quote(digest) +
                              "; it must be 32 (MD5), 40 (SHA-1) or 64 (SHA-256) digits 0 to 9 and a to f.");
}

std::string digest(Digest kind, std::string_view bytes) {
  Sum sum(kind);
  sum.add(bytes.data(), bytes.size());
  return sum.hex();
}

std::string digest_of_file(Digest kind, const std::filesystem::path& path) {
  constexpr std::size_t piece = std::size_t{1} << 20;
  const int file = open_regular(path, O_RDONLY);
  std::vector<char> bytes(piece);
  Sum sum(kind);
  ssize_t count = 0;
  while ((count = ::read(file, bytes.data(), piece)) > 0) sum.add(bytes.data(), static_cast<std::size_t>(count));
  ::close(file);
  if (count < 0) throw std::runtime_error(path.string() + " cannot be read.");
  return sum.hex();
}

}  // namespace hkt::data
