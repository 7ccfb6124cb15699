// The pool: each index once, with several callers at a time, while pools come and go. For the thread sanitizer too.
#include <atomic>
#include <thread>

#include "check.h"
#include "pool.h"
#include "usable_cpus.h"

namespace {

using namespace dspark::cpu;
using namespace dspark::test;

void caller(Pool& pool, unsigned seed, int jobs, std::atomic<int>& wrong) {
  std::mt19937 random(seed);
  std::vector<int> counts;
  for (int job = 0; job < jobs; job++) {
    const int n = static_cast<int>(random() % 200);
    const int chunk = 1 + static_cast<int>(random() % 9);
    counts.assign(n, 0);
    pool.run(n, chunk, [&](int begin, int end) {
      for (int i = begin; i < end; i++) {
        counts[i]++;
      }
    });
    for (const int count : counts) {
      wrong += count != 1;
    }
  }
}

} // namespace

int main(int argc, char** argv) {
  const int jobs = argc > 1 ? std::atoi(argv[1]) : 20000;
  std::atomic<int> wrong{0};
  {
    Pool four(4);
    std::thread first([&] { caller(four, 1, jobs, wrong); }), second([&] { caller(four, 2, jobs, wrong); });
    first.join();
    second.join();
  }
  check(wrong == 0, "every index exactly once");
  set_threads(2);
  std::thread changes([] {
    for (int i = 0; i < 50; i++) {
      set_threads(1 + i % 3);
    }
  });
  for (int i = 0; i < 200; i++) {
    const std::shared_ptr<Pool> current = pool();
    caller(*current, i, 5, wrong);
  }
  changes.join();
  check(wrong == 0, "every index exactly once while the pool changes");
  bool refused = false;
  try {
    set_threads(0);
  } catch (const std::invalid_argument&) {
    refused = true;
  }
  check(refused, "no threads are refused");
  check(usable_cpus() >= 1 && usable_cpus() <= static_cast<int>(std::thread::hardware_concurrency()), "usable processors");
  return report("pool");
}
