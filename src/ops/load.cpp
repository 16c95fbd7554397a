// SPDX-License-Identifier: Apache-2.0
// libhkt_ops, the library that Python loads: it checks that this process runs the version of torch that hkt was built for,
// and only then loads libhkt_operators. It uses no symbol of torch directly, so it loads with any version.
#include <dlfcn.h>

#include <cstdio>
#include <string>

namespace {

// The version of torch in this process; empty if torch is not loaded, "unknown" if the version cannot be determined.
std::string running_torch() {
  using ShowConfig = std::string (*)();
  constexpr auto show_config = "_ZN2at11show_configB5cxx11Ev";  // std::string at::show_config()
  void* found = dlsym(RTLD_DEFAULT, show_config);
  if (!found) {  // Python loads torch without making its symbols global
    void* library = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD);
    if (!library) return {};
    found = dlsym(library, show_config);
    dlclose(library);
  }
  const std::string config = found ? reinterpret_cast<ShowConfig>(found)() : std::string();
  const std::string key = "TORCH_VERSION=";
  const auto start = config.find(key);
  if (start == std::string::npos) return "unknown";
  const auto version = start + key.size();
  return config.substr(version, config.find_first_not_of("0123456789.", version) - version);
}

// Empty, or why libhkt_operators could not be loaded.
std::string load_hkt() {
  const std::string built_for = HKT_TORCH_VERSION;
  const std::string running = running_torch();
  if (running.empty())
    return "hkt's operators need torch " + built_for + ", but torch is not loaded; import torch first";
  if (running != built_for)
    return "hkt was built for torch " + built_for + ", but this process runs torch " + running +
           "; install torch==" + built_for + ", or rebuild hkt for the running version";
  if (dlopen(HKT_LIBRARY, RTLD_NOW | RTLD_NOLOAD)) return {};  // registering operators twice would abort the process
  Dl_info self;
  if (!dladdr(reinterpret_cast<void*>(&load_hkt), &self)) return "hkt cannot determine the path of libhkt_ops";
  const std::string path = self.dli_fname;
  const std::string folder = path.substr(0, path.find_last_of('/') + 1);
  if (!dlopen((folder + HKT_LIBRARY).c_str(), RTLD_NOW | RTLD_LOCAL))
    return std::string("hkt's operators cannot be loaded: ") + dlerror();
  return {};
}

// An exception left pending makes the call to dlopen in Python's ctypes fail, so torch.ops.load_library raises an OSError
// with this message as its cause. Throwing a C++ exception here would abort the process instead.
bool raise_in_python(const std::string& message) {
  const auto is_running = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "Py_IsInitialized"));
  const auto lock = reinterpret_cast<int (*)()>(dlsym(RTLD_DEFAULT, "PyGILState_Ensure"));
  const auto unlock = reinterpret_cast<void (*)(int)>(dlsym(RTLD_DEFAULT, "PyGILState_Release"));
  const auto set_error = reinterpret_cast<void (*)(void*, const char*)>(dlsym(RTLD_DEFAULT, "PyErr_SetString"));
  const auto import_error = static_cast<void**>(dlsym(RTLD_DEFAULT, "PyExc_ImportError"));
  if (!is_running || !lock || !unlock || !set_error || !import_error || !is_running()) return false;
  const int state = lock();
  set_error(*import_error, message.c_str());
  unlock(state);
  return true;
}

[[gnu::constructor]] void load() {
  const std::string problem = load_hkt();
  if (!problem.empty() && !raise_in_python(problem)) std::fprintf(stderr, "%s.\n", problem.c_str());
}

}  // namespace
