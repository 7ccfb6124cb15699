// Threads that share the chunks of one job. The caller takes part and waits for claimed chunks only, never for a worker
// to show up: on a machine that is busy elsewhere it does the whole job alone. A second caller that finds the pool taken
// works alone too, so callers never wait for each other.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <type_traits>
#include <vector>

namespace dspark::cpu {

class Pool {
 public:
  // `threads` includes the caller.
  explicit Pool(int threads);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  int threads() const {
    return static_cast<int>(workers_.size()) + 1;
  }

  // Calls body(begin, end) over [0, n) in pieces of `chunk`, on any thread, each piece once.
  template <class F>
  void run(int n, int chunk, F&& body) {
    using Body = std::remove_reference_t<F>;
    start(n, chunk, [](void* context, int begin, int end) { (*static_cast<Body*>(context))(begin, end); },
          const_cast<void*>(static_cast<const void*>(&body)));
  }

 private:
  using Function = void (*)(void* context, int begin, int end);
  void start(int n, int chunk, Function function, void* context);
  void claim_chunks();
  void work();

  std::vector<std::thread> workers_;
  std::mutex sleeping_;
  std::condition_variable wake_;
  std::mutex taken_;
  std::atomic<bool> stop_{false};
  // generation (24 bits) | chunks (20) | next chunk (20). A claim is one fetch_add; a closed job has no chunks.
  alignas(64) std::atomic<uint64_t> job_{0};
  alignas(64) std::atomic<int> done_{0};
  alignas(64) std::atomic<int> asleep_{0};
  // Written while the job is closed, read by whoever has claimed a chunk of it.
  int n_ = 0;
  int chunk_ = 1;
  Function function_ = nullptr;
  void* context_ = nullptr;
};

// The pool of the process: MLX_DSPARK_THREADS, or what set_threads said, or usable_cpus().
std::shared_ptr<Pool> pool();
// Throws std::invalid_argument outside 1…1024. Jobs that run keep their pool.
void set_threads(int threads);
// Back to as many as if set_threads had never been called.
void reset_threads();

} // namespace dspark::cpu
