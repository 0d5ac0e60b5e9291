// Sublayers around others: norms of a branch, factors, two branches beside each other.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "qkv/nn/norm.h"
#include "qkv/nn/sublayer.h"

namespace qkv {

// A sublayer around another, whose memory is that one's.
class Wrapper : public Sublayer {
 public:
  void add_states(DecodingStates& states, int64_t sequences) const override {
    inner_->add_states(states, sequences);
  }
  void add_segment_states(SegmentStates& states, int64_t sequences, int64_t longest) const override {
    inner_->add_segment_states(states, sequences, longest);
  }
  void update_buffers() const override { inner_->update_buffers(); }

 protected:
  explicit Wrapper(std::unique_ptr<Sublayer> inner) : inner_(std::move(inner)) {}
  std::unique_ptr<Sublayer> inner_;
};

// f(norm(x)): a branch that reads through a norm of its own.
class Normed : public Wrapper {
 public:
  Normed(const Norm& norm, std::unique_ptr<Sublayer> inner) : Wrapper(std::move(inner)), norm_(norm) {}
  Tensor forward(const Tensor& x, const Context& context) const override;

 private:
  Norm norm_;
};

// norm(f(x)): what a branch adds is normalised.
class OutputNormed : public Wrapper {
 public:
  OutputNormed(const Norm& norm, std::unique_ptr<Sublayer> inner) : Wrapper(std::move(inner)), norm_(norm) {}
  Tensor forward(const Tensor& x, const Context& context) const override;

 private:
  Norm norm_;
};

// factor f(x).
class Multiplied : public Wrapper {
 public:
  Multiplied(float factor, std::unique_ptr<Sublayer> inner) : Wrapper(std::move(inner)), factor_(factor) {}
  Tensor forward(const Tensor& x, const Context& context) const override;

 private:
  float factor_;
};

// f(x) + g(x): attention and the feed-forward network beside each other (Wang & Komatsuzaki 2021, GPT-J).
class SideBySide : public Wrapper {
 public:
  // Probes see each one's term as its name and ".branch".
  SideBySide(std::string attention_name, std::unique_ptr<Sublayer> attention, std::string feed_forward_name,
             std::unique_ptr<Sublayer> feed_forward)
      : Wrapper(std::move(attention)),
        names_{std::move(attention_name), std::move(feed_forward_name)},
        feed_forward_(std::move(feed_forward)) {}
  void add_states(DecodingStates& states, int64_t sequences) const override {
    Wrapper::add_states(states, sequences);
    feed_forward_->add_states(states, sequences);
  }
  void update_buffers() const override { feed_forward_->update_buffers(); }
  Tensor forward(const Tensor& x, const Context& context) const override;

 private:
  std::pair<std::string, std::string> names_;
  std::unique_ptr<Sublayer> feed_forward_;
};

}  // namespace qkv
