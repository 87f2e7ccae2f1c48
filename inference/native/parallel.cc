// What needs the C++ library: threads and memory. Compiled once, for every processor of the platform.
#include "parallel.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

static std::atomic<int> threads_set{1}, calls{0};

struct Blocks {
  std::atomic<int64_t> next{0};
  std::mutex mutex;
  std::condition_variable ended;
  int64_t turn = 0;
};

extern "C" void gsnmf_set_threads(int threads) { threads_set = threads < 1 ? 1 : threads; }

// Level of the processor: 2 with AVX-512, 1 with AVX2 and FMA, else 0.
extern "C" int gsnmf_level() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
                __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
  return avx2 ? 1 + avx512 : 0;
#else
  return 0;
#endif
}

int threads_allowed() { return threads_set; }

void run_parallel(int threads, void (*work)(void*, Blocks*, int), void* context) {
  Blocks blocks;
  int active = ++calls;  // devices of one process call at the same time, and share the threads
  threads = threads / active < 1 ? 1 : threads / active;
  std::vector<std::thread> others;
  try {
    for (int n = 1; n < threads; n++) others.emplace_back(work, context, &blocks, n);
  } catch (const std::exception&) {  // fewer threads do: whoever is there takes the next block
  }
  work(context, &blocks, 0);
  for (auto& thread : others) thread.join();
  --calls;
}

int64_t next_block(Blocks* blocks) { return blocks->next++; }

void await_turn(Blocks* blocks, int64_t block) {
  std::unique_lock<std::mutex> lock(blocks->mutex);
  blocks->ended.wait(lock, [&] { return blocks->turn == block; });
}

void end_turn(Blocks* blocks, int64_t block) {
  std::lock_guard<std::mutex> lock(blocks->mutex);
  blocks->turn = block + 1;
  blocks->ended.notify_all();
}

void* allocate_memory(uint64_t bytes) { return ::operator new(bytes + 64, std::align_val_t(64), std::nothrow); }

void free_memory(void* memory) { ::operator delete(memory, std::align_val_t(64)); }

extern "C" const char* gsnmf_fingerprint() { return FINGERPRINT; }
