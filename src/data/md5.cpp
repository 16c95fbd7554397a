// SPDX-License-Identifier: Apache-2.0
// MD5 by libcrypto.
#include "data/md5.h"

#include <fcntl.h>
#include <openssl/evp.h>
#include <unistd.h>

#include <array>
#include <memory>
#include <stdexcept>
#include <vector>

#include "files/regular_file.h"

namespace hkt::data {
namespace {

class Md5 {
 public:
  Md5() : context_(EVP_MD_CTX_new(), EVP_MD_CTX_free) { check(EVP_DigestInit_ex(context_.get(), EVP_md5(), nullptr)); }

  void add(const void* bytes, std::size_t size) { check(EVP_DigestUpdate(context_.get(), bytes, size)); }

  std::string hex() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> sum = {};
    unsigned size = 0;
    check(EVP_DigestFinal_ex(context_.get(), sum.data(), &size));
    constexpr std::string_view digits = "0123456789abcdef";
    std::string text;
    for (unsigned i = 0; i < size; ++i) text += {digits[sum[i] / 16], digits[sum[i] % 16]};
    return text;
  }

 private:
  static void check(int done) {
    if (done != 1) throw std::runtime_error("libcrypto could not compute an MD5; it may be disabled (FIPS mode).");
  }

  std::unique_ptr<EVP_MD_CTX, void (*)(EVP_MD_CTX*)> context_;
};

}  // namespace

std::string md5(std::string_view bytes) {
  Md5 sum;
  sum.add(bytes.data(), bytes.size());
  return sum.hex();
}

std::string md5_of_file(const std::filesystem::path& path) {
  constexpr std::size_t piece = std::size_t{1} << 20;
  const int file = open_regular(path, O_RDONLY);
  std::vector<char> bytes(piece);
  Md5 sum;
  ssize_t count = 0;
  while ((count = ::read(file, bytes.data(), piece)) > 0) sum.add(bytes.data(), static_cast<std::size_t>(count));
  ::close(file);
  if (count < 0) throw std::runtime_error(path.string() + " cannot be read.");
  return sum.hex();
}

}  // namespace hkt::data
