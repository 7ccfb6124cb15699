#include "pool.h"

#include <cstdlib>
#include <stdexcept>
#include <string>

#include "usable_cpus.h"

namespace dspark::cpu {
namespace {

constexpr int kThreadsMax = 1024;
// Pauses before an idle worker sleeps, about 50 µs: longer than the gaps between the parts of one step.
constexpr int kSpins = 4000;
constexpr int kFieldBits = 20;
constexpr uint64_t kField = (uint64_t(1) << kFieldBits) - 1;
constexpr uint64_t kGeneration = (uint64_t(1) << 24) - 1;

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

uint64_t generation(uint64_t job) {
  return job >> (2 * kFieldBits);
}
uint64_t chunks(uint64_t job) {
  return job >> kFieldBits & kField;
}
uint64_t next_chunk(uint64_t job) {
  return job & kField;
}

int threads_of_environment() {
  const char* text = std::getenv("MLX_DSPARK_THREADS");
  if (text == nullptr || *text == '\0') {
    return usable_cpus();
  }
  char* end = nullptr;
  const long count = std::strtol(text, &end, 10);
  if (*end != '\0' || count < 1 || count > kThreadsMax) {
    throw std::invalid_argument(std::string("MLX_DSPARK_THREADS=") + text + ": not a number from 1 to 1024");
  }
  return static_cast<int>(count);
}

std::mutex current_mutex;
std::shared_ptr<Pool> current;

} // namespace

Pool::Pool(int threads) {
  for (int i = 1; i < threads; i++) {
    workers_.emplace_back([this] { work(); });
  }
}

Pool::~Pool() {
  {
    const std::lock_guard<std::mutex> lock(sleeping_);
    stop_ = true;
    job_.fetch_add(uint64_t(1) << (2 * kFieldBits));
  }
  wake_.notify_all();
  for (std::thread& worker : workers_) {
    worker.join();
  }
}

void Pool::claim_chunks() {
  for (;;) {
    const uint64_t job = job_.fetch_add(1, std::memory_order_acq_rel);
    if (next_chunk(job) >= chunks(job)) {
      return;
    }
    const int begin = static_cast<int>(next_chunk(job)) * chunk_;
    const int end = begin + chunk_ < n_ ? begin + chunk_ : n_;
    function_(context_, begin, end);
    done_.fetch_add(1, std::memory_order_acq_rel);
  }
}

void Pool::work() {
  uint64_t seen = 0;
  for (;;) {
    int spins = 0;
    uint64_t job;
    while (generation(job = job_.load(std::memory_order_acquire)) == seen) {
      if (++spins < kSpins) {
        pause();
        continue;
      }
      std::unique_lock<std::mutex> lock(sleeping_);
      asleep_++;
      wake_.wait(lock, [&] { return generation(job_.load()) != seen; });
      asleep_--;
    }
    seen = generation(job);
    if (stop_) {
      return;
    }
    if (next_chunk(job) < chunks(job)) {
      claim_chunks();
    }
  }
}

void Pool::start(int n, int chunk, Function function, void* context) {
  if (n <= 0) {
    return;
  }
  int count = (n + chunk - 1) / chunk;
  if (static_cast<uint64_t>(count) > kField / 2) {
    chunk = static_cast<int>((n + kField / 2 - 1) / (kField / 2));
    count = (n + chunk - 1) / chunk;
  }
  if (workers_.empty() || count == 1 || !taken_.try_lock()) {
    function(context, 0, n);
    return;
  }
  const std::lock_guard<std::mutex> lock(taken_, std::adopt_lock);
  n_ = n;
  chunk_ = chunk;
  function_ = function;
  context_ = context;
  done_.store(0, std::memory_order_relaxed);
  const uint64_t next = (generation(job_.load(std::memory_order_relaxed)) + 1) & kGeneration;
  job_.store(next << (2 * kFieldBits) | static_cast<uint64_t>(count) << kFieldBits, std::memory_order_seq_cst);
  if (asleep_.load(std::memory_order_seq_cst) > 0) {
    // A worker that is about to sleep has seen the new job, or is woken.
    { const std::lock_guard<std::mutex> pass(sleeping_); }
    wake_.notify_all();
  }
  claim_chunks();
  for (int spins = 0; done_.load(std::memory_order_acquire) < count;) {
    pause();
    if (++spins > kSpins / 2) {
      std::this_thread::yield();
    }
  }
  job_.store(next << (2 * kFieldBits), std::memory_order_release);
}

std::shared_ptr<Pool> pool() {
  const std::lock_guard<std::mutex> lock(current_mutex);
  if (current == nullptr) {
    current = std::make_shared<Pool>(threads_of_environment());
  }
  return current;
}

void reset_threads() {
  set_threads(threads_of_environment());
}

void set_threads(int threads) {
  if (threads < 1 || threads > kThreadsMax) {
    throw std::invalid_argument("threads: " + std::to_string(threads) + " is not from 1 to 1024");
  }
  auto made = std::make_shared<Pool>(threads);
  const std::lock_guard<std::mutex> lock(current_mutex);
  current.swap(made);
}

} // namespace dspark::cpu
