#include "qkv/base/communicator.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>

#include "qkv/base/error.h"
#include "qkv/base/message.h"

namespace qkv {
namespace {

using Parts = std::span<const std::span<const std::byte>>;
using Targets = std::span<const std::span<std::byte>>;

template <typename T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

class SingleProcess : public Communicator {
 public:
  SingleProcess() : Communicator(0, 1) {}
  void exchange(Parts out, Targets in) override { keep_own(out, in); }
  std::vector<std::string> fail_together(const std::string& message) override { return {message}; }
};

// Shared by the ranks of one process. Every exchange has two meetings: all have posted, all have copied.
class Meeting {
 public:
  Meeting(int size, double timeout_s)
      : out(static_cast<size_t>(size)), size_(size), timeout_(timeout_s), arrived_(out.size()) {}

  void meet(int rank) {
    std::unique_lock lock(mutex_);
    expect_none_failed();
    const int64_t now = meetings_;
    arrived_[static_cast<size_t>(rank)] = true;
    if (++count_ == size_) {
      count_ = 0;
      arrived_.assign(arrived_.size(), false);
      ++meetings_;
      changed_.notify_all();
      return;
    }
    const bool on_time =
        changed_.wait_for(lock, timeout_, [&] { return meetings_ != now || !failure_.empty(); });
    if (meetings_ != now) return;
    expect_none_failed();
    if (on_time) return;
    const auto late = std::find(arrived_.begin(), arrived_.end(), false) - arrived_.begin();
    failure_ = fmt::format("rank {} of {} has not answered for {} s", late, size_, timeout_.count());
    changed_.notify_all();
    expect_none_failed();
  }

  void fail_with(int rank, const std::string& message) {
    const std::lock_guard lock(mutex_);
    if (failure_.empty()) failure_ = fmt::format("rank {} of {}: {}", rank, size_, message);
    changed_.notify_all();
  }

  std::vector<Parts> out;  // the parts that each rank has posted

 private:
  void expect_none_failed() const { check(failure_.empty(), "{}", failure_); }

  int size_;
  std::chrono::duration<double> timeout_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<bool> arrived_;
  int count_ = 0;
  int64_t meetings_ = 0;
  std::string failure_;
};

class ThreadRank : public Communicator {
 public:
  ThreadRank(int rank, int size, std::shared_ptr<Meeting> meeting)
      : Communicator(rank, size), meeting_(std::move(meeting)) {}

  void exchange(Parts out, Targets in) override {
    meeting_->out[static_cast<size_t>(rank())] = out;
    meeting_->meet(rank());
    keep_own(out, in);
    std::string wrong;
    for (size_t r = 0; r < in.size(); ++r) {
      if (static_cast<int>(r) == rank()) continue;
      const std::span<const std::byte> from = meeting_->out[r][static_cast<size_t>(rank())];
      if (from.size() == in[r].size())
        std::ranges::copy(from, in[r].begin());
      else
        wrong = fmt::format("exchange: rank {} sends {} bytes to rank {}, which expects {}", r, from.size(),
                            rank(), in[r].size());
    }
    meeting_->meet(rank());  // before an error: others may read what this rank has posted
    check(wrong.empty(), "{}", wrong);
    count_sent(out);
  }

  std::vector<std::string> fail_together(const std::string& message) override {
    meeting_->fail_with(rank(), message);
    return {message};
  }

 private:
  std::shared_ptr<Meeting> meeting_;
};

}  // namespace

void Communicator::keep_own(Parts out, Targets in) const {
  const auto from = out[static_cast<size_t>(rank_)];
  const auto to = in[static_cast<size_t>(rank_)];
  check(from.size() == to.size(), "exchange: rank {} keeps {} bytes, where it expects {}", rank_, from.size(),
        to.size());
  if (from.data() != to.data()) std::ranges::copy(from, to.begin());
}

void Communicator::count_sent(Parts out) {
  for (size_t r = 0; r < out.size(); ++r)
    if (static_cast<int>(r) != rank_) bytes_sent_ += std::ssize(out[r]);
}

void Communicator::barrier() {
  any(false);
}

std::vector<std::string> Communicator::gather(const std::string& mine) {
  return all_to(mine, [](int) { return true; });
}

std::vector<std::string> Communicator::collect(const std::string& mine) {
  return all_to(mine, [](int r) { return r == 0; });
}

std::string Communicator::broadcast(const std::string& leaders) {
  return gather(leads() ? leaders : std::string()).front();
}

// The texts of all ranks, on the ranks for which `wants` is true.
std::vector<std::string> Communicator::all_to(const std::string& mine,
                                              const std::function<bool(int)>& wants) {
  const auto ranks = static_cast<size_t>(size_);
  const uint64_t length = mine.size();
  std::vector<uint64_t> lengths(ranks);
  std::vector<std::span<const std::byte>> out(ranks, bytes_of(length));
  std::vector<std::span<std::byte>> in(ranks);
  for (size_t r = 0; r < ranks; ++r) in[r] = std::as_writable_bytes(std::span(&lengths[r], 1));
  exchange(out, in);
  std::vector<std::string> all(ranks);
  for (size_t r = 0; r < ranks; ++r) {
    out[r] = std::as_bytes(std::span(mine)).first(wants(static_cast<int>(r)) ? mine.size() : 0);
    in[r] = {};
    if (!wants(rank_)) continue;
    all[r].resize(lengths[r]);
    in[r] = std::as_writable_bytes(std::span(all[r]));
  }
  exchange(out, in);
  return all;
}

bool Communicator::any(bool mine) {
  const auto ranks = static_cast<size_t>(size_);
  std::vector<std::byte> said(ranks);
  const std::byte my_answer{mine};
  const std::vector<std::span<const std::byte>> out(ranks, bytes_of(my_answer));
  std::vector<std::span<std::byte>> in(ranks);
  for (size_t r = 0; r < ranks; ++r) in[r] = std::span(&said[r], 1);
  exchange(out, in);
  return std::ranges::find(said, std::byte{true}) != said.end();
}

std::vector<std::vector<double>> Communicator::share(int64_t items,
                                                     const std::function<std::vector<double>(int64_t)>& f) {
  std::vector<std::vector<double>> all(static_cast<size_t>(items));
  std::string mine;  // for each item the count of its numbers, then these
  for (int64_t i = rank_; i < items; i += size_) {
    std::vector<double>& numbers = all[static_cast<size_t>(i)];
    numbers = f(i);
    if (alone()) continue;
    put(mine, numbers.size());
    for (const double x : numbers) put(mine, x);
  }
  if (alone()) return all;
  const std::vector<std::string> ranks = gather(mine);
  for (int r = 0; r < size_; ++r) {
    std::string_view left = ranks[static_cast<size_t>(r)];
    for (int64_t i = r; i < items; i += size_) {
      std::vector<double>& numbers = all[static_cast<size_t>(i)];
      numbers.resize(take<size_t>(left));
      for (double& x : numbers) x = take<double>(left);
    }
  }
  return all;
}

Communicator& single_process() {
  static SingleProcess alone;
  return alone;
}

std::vector<std::unique_ptr<Communicator>> thread_communicators(int size, double timeout_s) {
  const auto meeting = std::make_shared<Meeting>(size, timeout_s);
  std::vector<std::unique_ptr<Communicator>> ranks;
  for (int r = 0; r < size; ++r) ranks.push_back(std::make_unique<ThreadRank>(r, size, meeting));
  return ranks;
}

}  // namespace qkv
