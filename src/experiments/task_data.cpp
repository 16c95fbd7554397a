// SPDX-License-Identifier: Apache-2.0
// Configs fitted to data.
#include "experiments/task_data.h"

#include <type_traits>

namespace hkt::experiments {

Config fitted(const train::ConfigDraft& draft, const TaskData& data) {
  return std::visit(
      [&]<class Data>(const Data& some) {
        if constexpr (std::is_same_v<Data, data::Dataset>) return draft.fitted_to(some.vocab, std::ssize(some.labels));
        return draft.fitted_to(some.vocab, 0);
      },
      data);
}

}  // namespace hkt::experiments
