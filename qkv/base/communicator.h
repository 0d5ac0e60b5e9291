// The ranks that train one model together: processes on one or more machines, or threads in tests. Only
// mpi_communicator.cc knows MPI.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace qkv {

// One rank's connection to all ranks. Each call is collective: every rank makes the same calls in the same
// order. One thread of a rank may use it at a time. Calls throw Error if a rank has failed, or has not
// answered within the timeout.
class Communicator {
 public:
  virtual ~Communicator() = default;

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool leads() const { return rank_ == 0; }  // this rank writes files and the console
  bool alone() const { return size_ == 1; }

  // Sends out[r] to each rank r and fills in[r] with what rank r sends; out[rank()] is copied. Both have
  // size() parts, which may be empty. in[r] has the size of rank r's out[rank()].
  virtual void exchange(std::span<const std::span<const std::byte>> out,
                        std::span<const std::span<std::byte>> in) = 0;
  // Tells the other ranks that this one has failed: their calls throw Error from now on. Returns the lines
  // that this rank should print: none if another one prints them.
  virtual std::vector<std::string> fail_together(const std::string& message) = 0;

  // Returns once every rank has called it.
  void barrier();
  // Returns the texts of all ranks, in their order.
  std::vector<std::string> gather(const std::string& mine);
  // The same on rank 0 alone; empty texts on others.
  std::vector<std::string> collect(const std::string& mine);
  // Returns the text of rank 0.
  std::string broadcast(const std::string& leaders);
  // True if any rank gives true.
  bool any(bool mine);
  // Divides work among the ranks: calls f(i) for item i on rank i % size(). Returns the numbers that f gives
  // for all `items`, in their order, on every rank.
  std::vector<std::vector<double>> share(int64_t items, const std::function<std::vector<double>(int64_t)>& f);

  // Bytes that this rank has sent to other ranks by exchange().
  int64_t bytes_sent() const { return bytes_sent_; }

 protected:
  Communicator(int rank, int size) : rank_(rank), size_(size) {}
  // Copies out[rank()] to in[rank()], which may be the same memory.
  void keep_own(std::span<const std::span<const std::byte>> out,
                std::span<const std::span<std::byte>> in) const;
  void count_sent(std::span<const std::span<const std::byte>> out);

 private:
  std::vector<std::string> all_to(const std::string& mine, const std::function<bool(int)>& wants);

  int rank_, size_;
  int64_t bytes_sent_ = 0;
};

// This process alone.
Communicator& single_process();

// `size` ranks for the threads of one process, one each. A call waits at most `timeout_s` seconds for the
// other ranks.
std::vector<std::unique_ptr<Communicator>> thread_communicators(int size, double timeout_s = 60);

// The ranks that mpirun started, or null if it did not start this process. A call waits at most `timeout_s`
// seconds for the other ranks, and five more to learn which one is late. Throws Error if mpirun started
// several ranks of a build without MPI.
std::unique_ptr<Communicator> mpi_communicator(double timeout_s);

}  // namespace qkv
