// SPDX-License-Identifier: Apache-2.0
// Tensor maps: descriptions of arrays for TMA, made by the driver, which is found at run time.
#include <stdexcept>
#include <string>

#include "common/launch.h"
#include "sm90/tensor_map.h"

namespace hkt::kernels::cuda::sm90 {
namespace {

constexpr std::int64_t element_bytes = 2;
constexpr std::int64_t alignment = 16;

using Encode = decltype(&cuTensorMapEncodeTiled);

Encode find_encode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found);
  if (error != cudaSuccess || found != cudaDriverEntryPointSuccess || function == nullptr)
    throw std::runtime_error("hkt: the CUDA driver has no cuTensorMapEncodeTiled; CUDA 12 or later is needed");
  return reinterpret_cast<Encode>(function);
}

CUtensorMapDataType data_type(Element element) {
  switch (element) {
    case Element::bfloat16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case Element::float16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    default:
      throw std::runtime_error("hkt: TMA kernels take bfloat16 and float16 only");
  }
}

CUtensorMapSwizzle swizzle(int box_width) {
  switch (box_width * element_bytes) {
    case 128:
      return CU_TENSOR_MAP_SWIZZLE_128B;
    case 64:
      return CU_TENSOR_MAP_SWIZZLE_64B;
    default:
      throw std::runtime_error("hkt: a box of a tensor map is 64 or 128 bytes wide");
  }
}

// A thread that has not used CUDA yet, as autograd's at first, has no context, and the driver wants one.
void bind_device() {
  thread_local const bool is_bound = [] {
    int device = 0;
    check(cudaGetDevice(&device), "the current device");
    check(cudaSetDevice(device), "the current device");
    return true;
  }();
  static_cast<void>(is_bound);
}

bool aligned_stride(std::int64_t stride) { return stride > 0 && stride * element_bytes % alignment == 0; }

// The stride of a dimension of size 1 is never used, and may be anything in the array.
cuuint64_t stride_bytes(std::int64_t stride, std::int64_t size) {
  return static_cast<cuuint64_t>(size > 1 ? stride * element_bytes : alignment);
}

}  // namespace

bool can_map(Element element, const Array& array) {
  return (element == Element::bfloat16 || element == Element::float16) &&
         reinterpret_cast<std::uintptr_t>(array.data) % alignment == 0 && aligned_stride(array.batch_stride) &&
         aligned_stride(array.head_stride) && aligned_stride(array.row_stride);
}

CUtensorMap tensor_map(Element element, const Array& array, std::int64_t width, std::int64_t rows, std::int64_t heads,
                       std::int64_t batch, int box_width, int box_rows, int row_step) {
  static const Encode encode = find_encode();
  bind_device();
  const cuuint64_t sizes[4] = {static_cast<cuuint64_t>(width), static_cast<cuuint64_t>(rows),
                               static_cast<cuuint64_t>(heads), static_cast<cuuint64_t>(batch)};
  const cuuint64_t strides[3] = {stride_bytes(array.row_stride * row_step, rows),
                                 stride_bytes(array.head_stride, heads), stride_bytes(array.batch_stride, batch)};
  const cuuint32_t box[4] = {static_cast<cuuint32_t>(box_width), static_cast<cuuint32_t>(box_rows), 1, 1};
  const cuuint32_t steps[4] = {1, 1, 1, 1};
  CUtensorMap map;
  const CUresult result =
      encode(&map, data_type(element), 4, array.data, sizes, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             swizzle(box_width), CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS)
    throw std::runtime_error("hkt: TMA cannot take an array of " + std::to_string(batch) + " x " +
                             std::to_string(heads) + " x " + std::to_string(rows) + " x " + std::to_string(width) +
                             " elements (CUDA error " + std::to_string(static_cast<int>(result)) + ")");
  return map;
}

RemainderRows remainder_rows(std::int64_t first, std::int64_t rows, int step, int remainder) {
  const std::int64_t shift = first <= remainder ? 0 : ceil_divide<std::int64_t>(first - remainder, step);
  const std::int64_t row = shift * step + remainder - first;
  if (row >= rows) return {0, 1, 1 << 29};
  return {row, ceil_divide<std::int64_t>(rows - row, step), static_cast<int>(shift)};
}

}  // namespace hkt::kernels::cuda::sm90
