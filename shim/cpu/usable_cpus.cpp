#include "usable_cpus.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>
#include <thread>

#ifdef __linux__
#include <sched.h>
#endif

namespace dspark::cpu {
#ifdef __linux__
namespace {

constexpr double kNoQuota = std::numeric_limits<double>::infinity();

// cgroup v2: "max 100000" or "150000 100000".
double quota_v2(const std::string& folder) {
  std::ifstream file(folder + "/cpu.max");
  std::string quota;
  double period = 0;
  if (!(file >> quota >> period) || quota == "max" || period <= 0) {
    return kNoQuota;
  }
  const double value = std::strtod(quota.c_str(), nullptr);
  return value > 0 ? value / period : kNoQuota;
}

double quota_v1(const std::string& folder) {
  std::ifstream quota_file(folder + "/cpu.cfs_quota_us"), period_file(folder + "/cpu.cfs_period_us");
  double quota = 0, period = 0;
  if (!(quota_file >> quota) || !(period_file >> period) || quota <= 0 || period <= 0) {
    return kNoQuota;
  }
  return quota / period;
}

// The tightest quota from `path` up to the root of the hierarchy.
template <class Read>
double tightest(const std::string& root, std::string path, Read&& read) {
  double quota = read(root);
  while (!path.empty() && path != "/") {
    quota = std::min(quota, read(root + path));
    path.erase(path.find_last_of('/'));
  }
  return quota;
}

double cgroup_quota() {
  std::ifstream groups("/proc/self/cgroup");
  std::string line;
  double quota = kNoQuota;
  while (std::getline(groups, line)) {
    const size_t first = line.find(':');
    const size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) {
      continue;
    }
    // Bounded by commas on both sides; cgroup v2 names no controller.
    std::string controllers(",");
    controllers.append(line, first + 1, second - first - 1).push_back(',');
    const std::string path = line.substr(second + 1);
    if (controllers == ",,") {
      quota = std::min(quota, tightest("/sys/fs/cgroup", path, quota_v2));
    } else if (controllers.find(",cpu,") != std::string::npos) {
      quota = std::min(quota, tightest("/sys/fs/cgroup/cpu", path, quota_v1));
    }
  }
  return quota;
}

} // namespace
#endif

int usable_cpus() {
  double count = std::max(1u, std::thread::hardware_concurrency());
#ifdef __linux__
  cpu_set_t mask;
  if (sched_getaffinity(0, sizeof(mask), &mask) == 0) {
    count = std::min<double>(count, CPU_COUNT(&mask));
  }
  count = std::min(count, std::ceil(cgroup_quota()));
#endif
  return std::max(1, static_cast<int>(count));
}

} // namespace dspark::cpu
