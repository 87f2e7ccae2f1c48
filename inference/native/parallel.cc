// What depends on the system: threads, memory and the processor. Compiled once, for every processor of the platform.
// It needs C's library only, so that a library built on one system serves others.
#include "parallel.h"

#include <atomic>
#include <cstdlib>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if !defined(_WIN32)
#include <pthread.h>
#endif
#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace {

std::atomic<int> threads_set{1}, calls{0};

// Subnormal numbers are 0, as in all of XLA's programs; set explicitly, so that all threads compute the same.
struct FlushSubnormals {
#if defined(__x86_64__)
  unsigned before = __builtin_ia32_stmxcsr();
  FlushSubnormals() { __builtin_ia32_ldmxcsr(before | 0x8040); }
  ~FlushSubnormals() { __builtin_ia32_ldmxcsr(before); }
#elif defined(__aarch64__)
  uint64_t before;
  FlushSubnormals() {
    asm volatile("mrs %0, fpcr" : "=r"(before));
    asm volatile("msr fpcr, %0" : : "r"(before | (uint64_t(1) << 24)));
  }
  ~FlushSubnormals() { asm volatile("msr fpcr, %0" : : "r"(before)); }
#endif
};

}  // namespace

extern "C" const char* gsnmf_fingerprint() { return FINGERPRINT; }

extern "C" void gsnmf_set_threads(int threads) { threads_set = threads < 1 ? 1 : threads; }

// Level of the processor: 1 with AVX2, FMA and BMI2, if the system keeps their registers, else 0.
extern "C" int gsnmf_level() {
#if defined(__x86_64__)
  unsigned a, b, c, d, low, high;
  constexpr unsigned kFma = 1u << 12, kSaved = 1u << 27, kAvx2 = 1u << 5, kBmi2 = 1u << 8;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & (kFma | kSaved)) != (kFma | kSaved)) return 0;
  asm volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  if ((low & 6) != 6 || !__get_cpuid_count(7, 0, &a, &b, &c, &d)) return 0;
  return (b & (kAvx2 | kBmi2)) == (kAvx2 | kBmi2);
#else
  return 0;
#endif
}

int threads_allowed() { return threads_set; }

#if defined(_WIN32)  // one thread

struct Blocks {
  int64_t next = 0;
};

void run_parallel(int, void (*work)(void*, Blocks*, int), void* context) {
  FlushSubnormals flush;
  Blocks blocks;
  work(context, &blocks, 0);
}

int64_t next_block(Blocks* blocks) { return blocks->next++; }
void await_turn(Blocks*, int64_t) {}
void end_turn(Blocks*, int64_t) {}

#else

struct Blocks {
  std::atomic<int64_t> next{0};
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  pthread_cond_t ended = PTHREAD_COND_INITIALIZER;
  int64_t turn = 0;
};

namespace {

struct Worker {
  void (*work)(void*, Blocks*, int);
  void* context;
  Blocks* blocks;
  int number;
  pthread_t thread;
};

void* run_worker(void* argument) {
  Worker* worker = static_cast<Worker*>(argument);
  FlushSubnormals flush;
  worker->work(worker->context, worker->blocks, worker->number);
  return nullptr;
}

}  // namespace

void run_parallel(int threads, void (*work)(void*, Blocks*, int), void* context) {
  Blocks blocks;
  Worker workers[kMostThreads];
  int active = ++calls, started = 0;  // devices of one process call at the same time, and share the threads
  threads = threads / active < kMostThreads ? threads / active : kMostThreads;
  for (int n = 1; n < threads; n++) {
    workers[n] = {work, context, &blocks, n, {}};
    // If there are no more threads, fewer do: whoever is there takes the next block.
    if (pthread_create(&workers[n].thread, nullptr, run_worker, &workers[n])) break;
    started = n;
  }
  workers[0] = {work, context, &blocks, 0, {}};
  run_worker(&workers[0]);
  for (int n = 1; n <= started; n++) pthread_join(workers[n].thread, nullptr);
  --calls;
}

int64_t next_block(Blocks* blocks) { return blocks->next++; }

void await_turn(Blocks* blocks, int64_t block) {
  pthread_mutex_lock(&blocks->mutex);
  while (blocks->turn != block) pthread_cond_wait(&blocks->ended, &blocks->mutex);
  pthread_mutex_unlock(&blocks->mutex);
}

void end_turn(Blocks* blocks, int64_t block) {
  pthread_mutex_lock(&blocks->mutex);
  blocks->turn = block + 1;
  pthread_cond_broadcast(&blocks->ended);
  pthread_mutex_unlock(&blocks->mutex);
}

#endif

// Large memory begins at a huge page, which Linux then uses: its addresses are found faster when they are scattered. The
// address that malloc returned stands before the aligned memory.
void* allocate_memory(uint64_t bytes) {
  constexpr uint64_t huge = 1 << 21;
  uint64_t alignment = bytes < huge ? 64 : huge;
  char* memory = static_cast<char*>(std::malloc(bytes + alignment + 64));
  if (memory == nullptr) return nullptr;
  char* aligned = memory + 64 + alignment - (reinterpret_cast<uintptr_t>(memory) + 64) % alignment;
  reinterpret_cast<void**>(aligned)[-1] = memory;
#if defined(__linux__)
  if (bytes >= huge) madvise(aligned, bytes / huge * huge, MADV_HUGEPAGE);
#endif
  return aligned;
}

void free_memory(void* memory) { std::free(static_cast<void**>(memory)[-1]); }
