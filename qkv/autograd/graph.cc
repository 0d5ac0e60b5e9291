#include "qkv/autograd/graph.h"

#include <algorithm>
#include <atomic>
#include <queue>

#include "qkv/base/parallel.h"
#include "qkv/kernels/kernels.h"

namespace qkv {
namespace {

thread_local bool is_recording = true;
thread_local bool is_part_of_training = false;

std::atomic<int64_t> next_id{0};

// a + b into a where nobody else sees a, else into a new tensor.
Tensor sum_of(Tensor a, const Tensor& b) {
  check(a.shape() == b.shape() && a.dtype() == b.dtype(), "gradient: {} {} does not match {} {}",
        name_of(a.dtype()), a.shape(), name_of(b.dtype()), b.shape());
  Tensor out = a.unique() ? a : Tensor::empty(a.shape(), a.dtype());
  auto add = [&]<typename T>(T) {
    const Span<const T> x = a.values<T>(), y = b.values<T>();
    const Span<T> to = out.mutable_values<T>();
    parallel_for(a.count(), 1 << 15, [&](int64_t i, int64_t end) {
      const int64_t n = end - i;
      kernels().typed<T>().add(n, x.subspan(i, n).data(), y.subspan(i, n).data(), to.subspan(i, n).data());
    });
  };
  a.dtype() == DType::bf16 ? add(BFloat16{}) : add(float{});
  return out;
}

}  // namespace

Node::Node() : id_(next_id.fetch_add(1, std::memory_order_relaxed)) {}

int Node::add_input(const Tensor& x) {
  inputs_.push_back(x.defined() && x.edge() ? *x.edge() : GraphEdge{});
  return static_cast<int>(inputs_.size()) - 1;
}

void Node::give(int input, Tensor grad) {
  const GraphEdge& edge = inputs_[input];
  if (!edge.node) return;
  auto& grads = edge.node->grads_;
  if (grads.size() <= static_cast<size_t>(edge.slot)) grads.resize(edge.slot + 1);
  Tensor& slot = grads[edge.slot];
  slot = slot.defined() ? sum_of(std::move(slot), grad) : std::move(grad);
}

void Node::weight_grad(int input, Shape shape, const std::function<void(Tensor&, bool)>& write) {
  if (!wants(input)) return;
  if (auto* leaf = dynamic_cast<Leaf*>(inputs_[input].node.get())) {
    assert(leaf->grad.shape() == shape);
    write(leaf->grad, !leaf->fresh);
    leaf->fresh = false;
    return;
  }
  Tensor grad = Tensor::empty(shape, DType::f32);
  write(grad, false);
  give(input, std::move(grad));
}

void Node::product_grad(int input, Shape shape, DType type, const std::function<void(Tensor&, bool)>& write) {
  const GraphEdge& edge = inputs_[input];
  if (!edge.node) return;
  auto& grads = edge.node->grads_;
  const auto slot = static_cast<size_t>(edge.slot);
  if (slot < grads.size() && grads[slot].defined() && grads[slot].unique() && grads[slot].dtype() == type) {
    check(grads[slot].shape() == shape, "gradient: {} does not match {}", grads[slot].shape(), shape);
    return write(grads[slot], true);
  }
  Tensor grad = Tensor::empty(shape, type);
  write(grad, false);
  give(input, std::move(grad));
}

void Leaf::backward(std::span<Tensor> grads) {
  if (grads.empty() || !grads[0].defined()) return;
  Tensor wide = grads[0];
  if (wide.dtype() == DType::bf16) {
    wide = Tensor::empty(grad.shape(), DType::f32);
    kernels().bf16.to_f32(grad.count(), grads[0].values<BFloat16>().first(grad.count()).data(),
                          wide.mutable_values<float>().data());
  }
  if (fresh)
    grad.copy(wide);
  else
    kernels().axpy(grad.count(), 1, wide.values<float>().first(grad.count()).data(),
                   grad.mutable_values<float>().data());
  fresh = false;
}

std::shared_ptr<Leaf> make_leaf(Tensor& x, Tensor grad) {
  auto leaf = std::make_shared<Leaf>(std::move(grad));
  connect(x, leaf);
  return leaf;
}

void connect(Tensor& x, std::shared_ptr<Node> node, int slot) {
  x.set_edge(std::make_shared<GraphEdge>(GraphEdge{std::move(node), slot}));
}

bool recording() {
  return is_recording;
}

bool inferring() {
  return !is_recording && !is_part_of_training;
}

bool wants_grad(std::initializer_list<const Tensor*> tensors) {
  if (!is_recording) return false;
  for (const Tensor* t : tensors)
    if (t->defined() && t->edge()) return true;
  return false;
}

PartOfTraining::PartOfTraining() : before_(std::exchange(is_part_of_training, true)) {}
PartOfTraining::~PartOfTraining() {
  is_part_of_training = before_;
}

NoGrad::NoGrad() : before_(is_recording) {
  is_recording = false;
}
NoGrad::~NoGrad() {
  is_recording = before_;
}

namespace {

class Watch : public Node {
 public:
  Watch(const Tensor& x, std::function<void(const Tensor&)> seen) : seen_(std::move(seen)) { add_input(x); }
  std::string_view name() const override { return "watch"; }
  void backward(std::span<Tensor> grads) override {
    seen_(grads[0]);
    give(0, std::move(grads[0]));
  }

 private:
  std::function<void(const Tensor&)> seen_;
};

}  // namespace

Tensor watch(const Tensor& x, std::function<void(const Tensor& gradient)> seen) {
  if (!is_recording) return x;
  const auto node = std::make_shared<Watch>(x, std::move(seen));
  Tensor out = x.detach();
  connect(out, node);
  return out;
}

void backward(std::span<const Seed> seeds) {
  const NoGrad guard;
  const PartOfTraining training;
  struct Older {
    bool operator()(const std::shared_ptr<Node>& a, const std::shared_ptr<Node>& b) const {
      return a->id() < b->id();
    }
  };
  // A node is newer than all of its inputs, so by the time it is on top its gradient is complete.
  std::priority_queue<std::shared_ptr<Node>, std::vector<std::shared_ptr<Node>>, Older> queue;
  for (const auto& [x, grad] : seeds) {
    if (!x.edge() || !grad.defined()) continue;
    const auto& edge = *x.edge();
    if (edge.node->grads_.size() <= static_cast<size_t>(edge.slot)) edge.node->grads_.resize(edge.slot + 1);
    Tensor& slot = edge.node->grads_[edge.slot];
    slot = slot.defined() ? sum_of(std::move(slot), grad) : grad;
    queue.push(edge.node);
  }
  while (!queue.empty()) {
    const std::shared_ptr<Node> node = queue.top();
    while (!queue.empty() && queue.top() == node) queue.pop();
    std::vector<Tensor> grads = std::move(node->grads_);
    node->grads_.clear();
    const bool reached = std::any_of(grads.begin(), grads.end(), [](const Tensor& g) { return g.defined(); });
    if (reached) node->backward(grads);
    grads.clear();
    for (GraphEdge& edge : node->inputs_)
      if (edge.node) queue.push(std::move(edge.node));
    node->inputs_.clear();
  }
}

void backward(const Tensor& root) {
  check(root.count() == 1 && root.dtype() == DType::f32, "backward: expected an f32 scalar, got {} {}",
        name_of(root.dtype()), root.shape());
  const float one = 1;
  const Seed seed{root, Tensor::of(root.shape(), std::span(&one, 1))};
  backward(std::span(&seed, 1));
}

namespace {

// Catches the gradient of an input of a recomputed part.
class Capture : public Node {
 public:
  std::string_view name() const override { return "capture"; }
  void backward(std::span<Tensor> grads) override {
    if (!grads.empty()) grad = std::move(grads[0]);
  }
  Tensor grad;
};

class Recompute : public Node {
 public:
  using Function = std::function<std::vector<Tensor>(const std::vector<Tensor>&)>;
  Recompute(const std::vector<Tensor>& inputs, Function f) : f_(std::move(f)) {
    for (const Tensor& x : inputs) {
      add_input(x);
      saved_.push_back(x.defined() ? x.detach() : x);
    }
  }
  std::string_view name() const override { return "recompute"; }

  void backward(std::span<Tensor> grads) override {
    std::vector<std::shared_ptr<Capture>> captures(saved_.size());
    for (size_t i = 0; i < saved_.size(); ++i)
      if (wants(static_cast<int>(i))) connect(saved_[i], captures[i] = std::make_shared<Capture>());
    const bool before = std::exchange(is_recording, true);
    const std::vector<Tensor> outputs = f_(saved_);
    is_recording = before;
    std::vector<Seed> seeds;
    for (size_t i = 0; i < outputs.size() && i < grads.size(); ++i)
      if (outputs[i].defined()) seeds.emplace_back(outputs[i], grads[i]);
    qkv::backward(seeds);
    for (size_t i = 0; i < captures.size(); ++i)
      if (captures[i] && captures[i]->grad.defined()) give(static_cast<int>(i), std::move(captures[i]->grad));
  }

 private:
  Function f_;
  std::vector<Tensor> saved_;
};

}  // namespace

std::vector<Tensor> recompute(const std::vector<Tensor>& inputs,
                              std::function<std::vector<Tensor>(const std::vector<Tensor>&)> f) {
  if (!is_recording) return f(inputs);
  std::vector<Tensor> outputs;
  {
    const NoGrad guard;
    const PartOfTraining training;
    outputs = f(inputs);
  }
  const auto node = std::make_shared<Recompute>(inputs, std::move(f));
  for (size_t i = 0; i < outputs.size(); ++i)
    if (outputs[i].defined()) connect(outputs[i], node, static_cast<int>(i));
  return outputs;
}

namespace {

// x + factor y, both f32.
Tensor plus(const Tensor& x, float factor, const Tensor& y) {
  Tensor out = x.clone();
  const Span<float> to = out.mutable_values<float>();
  const Span<const float> from = y.values<float>();
  parallel_for(x.count(), 1 << 14, [&](int64_t i, int64_t end) {
    kernels().axpy(end - i, factor, from.subspan(i, end - i).data(), to.subspan(i, end - i).data());
  });
  return out;
}

class Reversible : public Node {
 public:
  using Steps = std::vector<std::function<Tensor(const Tensor&)>>;
  Reversible(const TensorPair& start, const TensorPair& end, Steps steps)
      : steps_(std::move(steps)), x_(end.x.detach()), other_(end.other.detach()) {
    add_input(start.x);
    add_input(start.other);
  }
  std::string_view name() const override { return "reversible"; }

  void backward(std::span<Tensor> grads) override {
    const auto zeros = [&] { return Tensor::zeros(x_.shape(), x_.dtype()); };
    Tensor dx = grads[0].defined() ? grads[0] : zeros(),
           dother = grads.size() > 1 && grads[1].defined() ? grads[1] : zeros();
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
      Tensor read = std::exchange(other_, Tensor());
      const auto capture = std::make_shared<Capture>();
      connect(read, capture);
      const bool before = std::exchange(is_recording, true);
      const Tensor branch = (*step)(read);
      is_recording = before;
      qkv::backward(std::vector<Seed>{{branch, dx}});
      other_ = plus(x_, -1, branch);
      if (capture->grad.defined()) dother = plus(dother, 1, capture->grad);
      x_ = read.detach();
      std::swap(dx, dother);
    }
    give(0, std::move(dx));
    give(1, std::move(dother));
  }

 private:
  Steps steps_;
  Tensor x_, other_;
};

}  // namespace

TensorPair reversible(const TensorPair& start, std::vector<std::function<Tensor(const Tensor&)>> steps) {
  const auto run = [&] {
    TensorPair at = start;
    for (const auto& f : steps) at = {plus(at.other, 1, f(at.x)), at.x};
    return at;
  };
  check(start.x.dtype() == DType::f32 && start.other.dtype() == DType::f32 &&
            start.x.shape() == start.other.shape(),
        "reversible: expected two f32 tensors of one shape, got {} and {}", start.x, start.other);
  if (!is_recording) return run();
  TensorPair end;
  {
    const NoGrad guard;
    const PartOfTraining training;
    end = run();
    end = {end.x.detach(), end.other.detach()};
  }
  const auto node = std::make_shared<Reversible>(start, end, std::move(steps));
  connect(end.x, node, 0);
  connect(end.other, node, 1);
  return end;
}

}  // namespace qkv
