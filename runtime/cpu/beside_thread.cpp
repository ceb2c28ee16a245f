#include "runtime/cpu/beside_thread.h"

#include <algorithm>

namespace gcomp::runtime::cpu {

BesideThread::~BesideThread() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  queued_.notify_one();
  thread_.join();
}

std::uint64_t BesideThread::start(BesideWork& program) {
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  {
    const std::lock_guard lock(mutex_);
    const std::uint64_t done = done_.load(std::memory_order_relaxed);
    programs_.erase(programs_.begin(), programs_.begin() + static_cast<std::ptrdiff_t>(done + 1 - first_));
    first_ = done + 1;
    programs_.push_back(&program);
    ++started_;
  }
  queued_.notify_one();
  return started_;
}

void BesideThread::run() {
  for (std::uint64_t next = 1;; ++next) {
    BesideWork* program = nullptr;
    {
      std::unique_lock lock(mutex_);
      queued_.wait(lock, [&] { return stopping_ || started_ >= next; });
      if (started_ < next) return;
      program = programs_[static_cast<std::size_t>(next - first_)];
    }
    std::exception_ptr error;
    if (!failed_.load(std::memory_order_relaxed)) try {
        program->work();
      } catch (...) { error = std::current_exception(); }
    {
      const std::lock_guard lock(mutex_);
      if (error) {
        error_ = error;
        failed_.store(true, std::memory_order_release);
      }
      done_.store(next, std::memory_order_release);
    }
    advanced_.notify_all();
  }
}

void BesideThread::await(std::uint64_t number) {
  if (done_.load(std::memory_order_acquire) >= number) return;
  std::unique_lock lock(mutex_);
  advanced_.wait(lock, [&] { return done_.load(std::memory_order_relaxed) >= number; });
}

void BesideThread::wait(std::uint64_t number) {
  await(number);
  if (!failed_.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex_);
  std::rethrow_exception(error_);
}

void BesideThread::finish() noexcept { await(started_); }

void BesideThread::wait_for_others(std::span<const BesideWork* const> known) {
  std::uint64_t last = 0;
  if (done_.load(std::memory_order_acquire) < started_) {
    const std::lock_guard lock(mutex_);
    for (std::uint64_t number = first_; number <= started_; ++number)
      if (std::ranges::find(known, programs_[static_cast<std::size_t>(number - first_)]) == known.end()) last = number;
  }
  wait(last);
}

}  // namespace gcomp::runtime::cpu
