#include <fmt/format.h>

#include <cstdlib>

#include "qkv/base/communicator.h"
#include "qkv/base/error.h"
#include "qkv/base/message.h"

#ifdef QKV_MPI
#define OMPI_SKIP_MPICXX 1
#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>
#include <thread>
#endif

namespace qkv {
namespace {

// True if Open MPI's mpirun, or another launcher that speaks PMIx to it, has started this process.
bool launched() {
  return std::getenv("OMPI_COMM_WORLD_SIZE") != nullptr || std::getenv("PMIX_RANK") != nullptr;
}

}  // namespace

#ifndef QKV_MPI

std::unique_ptr<Communicator> mpi_communicator(double) {
  const char* size = std::getenv("OMPI_COMM_WORLD_SIZE");
  check(!launched() || (size != nullptr && std::atoi(size) == 1),
        "mpirun started several ranks, but this qkv was built without MPI: install libopenmpi-dev and build "
        "it again");
  return nullptr;
}

#else

namespace {

using Clock = std::chrono::steady_clock;
using Seconds = std::chrono::duration<double>;

constexpr size_t kLongest = size_t{1} << 30;  // bytes of a message, whose length is an int
// Tags: values; last words; the question of a rank that has waited for too long, and its answer.
constexpr int kData = 1, kNotice = 2, kQuestion = 3, kAnswer = 4;
constexpr Seconds kFarewell{5};  // a rank waits so long for last words and answers

// Lets the processor do something else while nothing arrives: first other threads, then nothing at all.
class Patience {
 public:
  void wait() {
    if (++turns_ < 2000)
      sched_yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }

 private:
  int turns_ = 0;
};

// A rank's last words. `own`: it failed by itself, not because another rank did.
struct Notice {
  bool own = false;
  std::string message = {};
};

class MpiRanks : public Communicator {
 public:
  MpiRanks(int rank, int size, double timeout_s)
      : Communicator(rank, size),
        timeout_(timeout_s),
        notices_(static_cast<size_t>(size)),
        answers_(static_cast<size_t>(size)) {
    MPI_Comm_dup(MPI_COMM_WORLD, &data_);
    MPI_Comm_dup(MPI_COMM_WORLD, &asides_);
  }
  MpiRanks(const MpiRanks&) = delete;
  MpiRanks& operator=(const MpiRanks&) = delete;
  ~MpiRanks() override {
    if (notices_[static_cast<size_t>(rank())] && !all_said()) MPI_Abort(MPI_COMM_WORLD, 1);
    for (MPI_Request& request : sending_)
      if (request != MPI_REQUEST_NULL) MPI_Request_free(&request);
    MPI_Comm_free(&data_);
    MPI_Comm_free(&asides_);
    MPI_Finalize();
  }

  void exchange(std::span<const std::span<const std::byte> > out,
                std::span<const std::span<std::byte> > incoming) override {
    keep_own(out, incoming);
    requests_.clear();
    peers_.clear();
    std::vector<int> expected;  // lengths of the first requests, which receive
    for (int r = 0; r < size(); ++r)
      for (std::span<std::byte> part = incoming[static_cast<size_t>(r)]; r != rank() && !part.empty();) {
        const size_t n = std::min(part.size(), kLongest);
        MPI_Irecv(part.data(), static_cast<int>(n), MPI_BYTE, r, kData, data_, &requests_.emplace_back());
        peers_.push_back(r);
        expected.push_back(static_cast<int>(n));
        part = part.subspan(n);
      }
    for (int r = 0; r < size(); ++r)
      for (std::span<const std::byte> part = out[static_cast<size_t>(r)]; r != rank() && !part.empty();) {
        const size_t n = std::min(part.size(), kLongest);
        MPI_Isend(part.data(), static_cast<int>(n), MPI_BYTE, r, kData, data_, &requests_.emplace_back());
        peers_.push_back(r);
        part = part.subspan(n);
      }
    try {
      expect_lengths(statuses_of_all(), expected);
    } catch (const Error& e) {
      if (abandoned(expected.size())) throw;
      // MPI may still read or write memory that whoever catches this would free.
      for (const std::string& line : fail_together(e.what())) fmt::print(stderr, "qkv: {}\n", line);
      std::_Exit(1);
    }
    count_sent(out);
  }

  std::vector<std::string> fail_together(const std::string& message) override {
    listen();
    const bool own = std::ranges::none_of(notices_, [](const auto& n) { return n.has_value(); });
    notices_[static_cast<size_t>(rank())] = Notice{own, message};
    for (int r = 0; r < size(); ++r)
      if (r != rank()) tell(r, kNotice, (own ? "1" : "0") + message);
    Patience patience;
    int sent = 0;
    for (const auto end = Clock::now() + kFarewell; Clock::now() < end && (sent == 0 || !all_said());
         patience.wait()) {
      listen();
      if (sent == 0)
        MPI_Testall(static_cast<int>(sending_.size()), sending_.data(), &sent, MPI_STATUSES_IGNORE);
    }
    // The first that failed by itself prints for all. A rank that wakes up when the job ends does not.
    const auto first = std::ranges::find_if(notices_, [](const auto& n) { return n && n->own; });
    if (first - notices_.begin() != rank()) {
      // The rank that prints then ends all. Until it has, this one must not.
      if (!all_said()) std::this_thread::sleep_for(2 * kFarewell);
      return {};
    }
    const std::vector<std::string> lines = last_words();
    return lines.empty() ? std::vector<std::string>{message} : lines;
  }

 private:
  bool all_said() const {
    return std::ranges::all_of(notices_, [](const auto& n) { return n.has_value(); });
  }

  // Sends a message beside the values, without waiting for its receiver.
  void tell(int to, int tag, std::string message) {
    const std::string& kept = told_.emplace_back(std::move(message));
    MPI_Isend(kept.data(), static_cast<int>(kept.size()), MPI_BYTE, to, tag, asides_,
              &sending_.emplace_back());
  }

  // Receives what others have said: last words, questions, which it answers, and answers.
  void listen() {
    for (;;) {
      int found = 0;
      MPI_Status status;
      MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, asides_, &found, &status);
      if (found == 0) return;
      int length = 0;
      MPI_Get_count(&status, MPI_BYTE, &length);
      std::string text(static_cast<size_t>(length), ' ');
      const int from = status.MPI_SOURCE, tag = status.MPI_TAG;
      MPI_Recv(text.data(), length, MPI_BYTE, from, tag, asides_, MPI_STATUS_IGNORE);
      if (tag == kNotice) {
        notices_[static_cast<size_t>(from)] = Notice{text.front() == '1', text.substr(1)};
      } else if (tag == kQuestion) {
        for (const int r : awaited()) put(text, r);
        tell(from, kAnswer, text);
      } else {
        std::string_view left = text;
        if (take<int>(left) != question_) continue;  // the answer to an earlier one
        std::vector<int>& awaits = answers_[static_cast<size_t>(from)].emplace();
        while (!left.empty()) awaits.push_back(take<int>(left));
      }
    }
  }

  // The ranks that the exchange waits for.
  std::vector<int> awaited() const {
    std::vector<int> ranks;
    for (size_t i = 0; i < requests_.size(); ++i) {
      int done = 0;
      MPI_Request_get_status(requests_[i], &done, MPI_STATUS_IGNORE);
      if (done == 0 && std::ranges::find(ranks, peers_[i]) == ranks.end()) ranks.push_back(peers_[i]);
    }
    return ranks;
  }

  // Asks all ranks for whom they wait.
  void ask() {
    ++question_;
    answers_.assign(answers_.size(), std::nullopt);
    std::string text;
    put(text, question_);
    for (int r = 0; r < size(); ++r)
      if (r != rank()) tell(r, kQuestion, text);
  }

  // The rank without an answer for which this one waits, or for which those wait in turn; none if all answer.
  std::optional<int> silent() const {
    std::vector<int> chain = awaited();
    for (size_t i = 0; i < chain.size(); ++i) {
      if (chain[i] == rank()) continue;
      const auto& answer = answers_[static_cast<size_t>(chain[i])];
      if (!answer) return chain[i];
      for (const int r : *answer)
        if (std::ranges::find(chain, r) == chain.end()) chain.push_back(r);
    }
    return std::nullopt;
  }

  // Each failure once: with the rank's number if that rank alone has it.
  std::vector<std::string> last_words() const {
    std::vector<std::string> lines;
    std::vector<std::string> seen;
    for (size_t r = 0; r < notices_.size(); ++r) {
      const auto& n = notices_[r];
      if (!n || !n->own || std::ranges::find(seen, n->message) != seen.end()) continue;
      seen.push_back(n->message);
      const auto same =
          std::ranges::count_if(notices_, [&](const auto& o) { return o && o->message == n->message; });
      lines.push_back(same > 1 || size() == 1 ? n->message
                                              : fmt::format("rank {} of {}: {}", r, size(), n->message));
    }
    return lines;
  }

  // Ends the exchange's requests, of which the first `receives` receive. False if MPI still uses the memory
  // of some.
  bool abandoned(size_t receives) {
    for (size_t i = 0; i < receives; ++i)
      if (requests_[i] != MPI_REQUEST_NULL) MPI_Cancel(&requests_[i]);
    Patience patience;
    int done = 0;
    for (const auto end = Clock::now() + kFarewell; done == 0 && Clock::now() < end; patience.wait())
      MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, MPI_STATUSES_IGNORE);
    return done != 0;
  }

  // Waits for the exchange's requests. A rank that waits for a third one is not to blame if it takes too
  // long.
  std::vector<MPI_Status> statuses_of_all() {
    std::vector<MPI_Status> statuses(requests_.size());
    enum { patient, asking, patient_again, asking_again } state = patient;
    auto end = Clock::now() + timeout_;
    Patience patience;
    for (int64_t turn = 0;; ++turn, patience.wait()) {
      int done = 0;
      MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &done, statuses.data());
      if (done != 0) return statuses;
      if (turn % 16 != 0) continue;
      listen();
      for (size_t r = 0; r < notices_.size(); ++r)
        if (notices_[r]) fail("rank {} of {}: {}", r, size(), notices_[r]->message);
      if (Clock::now() < end) continue;
      if (state == patient || state == patient_again) {
        ask();
        state = state == patient ? asking : asking_again;
        end = Clock::now() + kFarewell;
        continue;
      }
      if (const auto r = silent())
        fail("rank {} of {} has not answered for {} s: it hangs, or it cannot be reached", *r, size(),
             timeout_.count());
      check(state == asking, "all ranks wait for each other: a message was lost, or takes more than {} s",
            2 * timeout_.count());
      state = patient_again;
      end = Clock::now() + timeout_;
    }
  }

  void expect_lengths(const std::vector<MPI_Status>& statuses, const std::vector<int>& expected) const {
    for (size_t i = 0; i < expected.size(); ++i) {
      int length = 0;
      MPI_Get_count(&statuses[i], MPI_BYTE, &length);
      check(length == expected[i], "exchange: rank {} sends {} bytes to rank {}, which expects {}", peers_[i],
            length, rank(), expected[i]);
    }
  }

  Seconds timeout_;
  MPI_Comm data_ = MPI_COMM_NULL, asides_ = MPI_COMM_NULL;
  std::deque<std::string> told_;  // messages that `sending_` sends
  std::vector<MPI_Request> sending_;
  std::vector<std::optional<Notice> > notices_;             // the last words of failed ranks
  std::vector<MPI_Request> requests_;                       // that an exchange waits for
  std::vector<int> peers_;                                  // the other rank of each
  int question_ = 0;                                        // the latest
  std::vector<std::optional<std::vector<int> > > answers_;  // to it: for whom ranks wait
};

}  // namespace

std::unique_ptr<Communicator> mpi_communicator(double timeout_s) {
  if (!launched()) return nullptr;
  int provided = 0;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_FUNNELED, &provided);
  int rank = 0, size = 1;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return std::make_unique<MpiRanks>(rank, size, timeout_s);
}

#endif

}  // namespace qkv
