// SPDX-License-Identifier: Apache-2.0
// Rows in shared memory as ldmatrix reads them without bank conflicts, and which of them a lane asks for.
#pragma once

#include <cstdint>

namespace hkt::kernels::cuda {

// Rows of `width` numbers; vectors of 16 bytes are swapped within a row so that eight rows, whether neighbours or every
// second one, meet different banks. The key of a row is that of every row 16 further.
template <int width>
struct Swizzled {
  static constexpr int vectors = width / 8, pitch = width * 2;
  std::uint32_t base;  // a multiple of the pitch

  // Of numbers without common bits: key(a + b) = key(a) ^ key(b).
  __device__ static constexpr int key(int row) {
    return width == 16 ? (row >> 2) & 1 : width == 32 ? (row >> 1) & 3 : ((row >> 1) ^ (row << 2)) & 7;
  }
  __device__ __forceinline__ std::uint32_t at(int row, int vector) const {
    return base + (row * pitch + ((vector ^ key(row)) << 4));
  }
  // Another array, which begins where this one's row lies; its rows are swapped by their own numbers.
  __device__ __forceinline__ Swizzled from_row(int row) const { return {base + row * pitch}; }
};

// What a lane reads of an array: its first vector, from which others lie at distances that are known when compiling.
// Rows: multiples of 16. Vectors: a number whose bits the first vector's number does not have.
template <int width>
struct Lane {
  std::uint32_t first;

  __device__ __forceinline__ Lane(Swizzled<width> array, int row, int vector) : first(array.at(row, vector)) {}
  __device__ __forceinline__ std::uint32_t at(int rows, int vectors) const {
    return (first ^ (vectors << 4)) + rows * Swizzled<width>::pitch;
  }
};

// Fragment addresses. Left operands: 16 rows; lane i asks for row i % 16 and one of two vectors. Right operands: two blocks
// of 8 columns; lane i asks for row i % 8 of block i / 16 and one of two vectors.
__device__ __forceinline__ int left_row() { return threadIdx.x % 16; }
__device__ __forceinline__ int left_vector() { return threadIdx.x % 32 / 16; }
__device__ __forceinline__ int right_block() { return threadIdx.x % 32 / 16; }
__device__ __forceinline__ int right_row() { return threadIdx.x % 8; }
__device__ __forceinline__ int right_vector() { return threadIdx.x / 8 % 2; }

}  // namespace hkt::kernels::cuda
