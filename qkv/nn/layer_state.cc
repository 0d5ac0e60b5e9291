#include "qkv/nn/layer_state.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "qkv/nn/context.h"

namespace qkv {
namespace {

// Checks what save() wrote: lengths i32 [sequences], then nothing or keys and values [rows, width].
void check_saved(const std::vector<Tensor>& saved, int64_t keys, int64_t values) {
  check(saved.size() == 1 || saved.size() == 3, "key/value state: expected lengths, keys and values");
  check(saved[0].dtype() == DType::i32 && saved[0].shape().rank() == 1,
        "key/value state: lengths must be i32 [sequences], got {} {}", name_of(saved[0].dtype()),
        saved[0].shape());
  for (size_t i = 1; i < saved.size(); ++i)
    check(saved[i].shape().rank() == 2 && saved[i].dtype() == saved[1].dtype() &&
              (saved[i].dtype() == DType::f32 || saved[i].dtype() == DType::bf16),
          "key/value state: keys and values must be f32 or bf16 [rows, width], got {} {}",
          name_of(saved[i].dtype()), saved[i].shape());
  const int64_t rows = saved.size() == 3 ? saved[1].dim(0) : 0;
  check(saved.size() == 1 ||
            (saved[1].width() == keys && saved[2].width() == values && saved[2].dim(0) == rows),
        "key/value state: saved tensors do not fit: expected [rows, {}] and [rows, {}]", keys, values);
  int64_t total = 0;
  for (const int32_t n : saved[0].values<int32_t>()) {
    check(n >= 0 && n <= rows - total, "key/value state: bad length {}", n);
    total += n;
  }
  check(total == rows, "key/value state: {} rows of sequences that have {}", rows, total);
}

}  // namespace

KeyValueState::KeyValueState(int64_t sequences, int64_t kv_heads, int64_t d_qk, int64_t d_vo)
    : kv_heads_(kv_heads), d_qk_(d_qk), d_vo_(d_vo), lengths_(sequences, 0), pages_(sequences) {}

void KeyValueState::grow(int64_t pages, DType dtype) {
  const auto before = static_cast<int64_t>(users_.size());
  Tensor keys = Tensor::empty({pages * kPageRows, kv_heads_ * d_qk_}, dtype);
  Tensor values = Tensor::empty({pages * kPageRows, kv_heads_ * d_vo_}, dtype);
  if (keys_.defined()) {
    copy_rows(keys_, 0, 0, before * kPageRows, keys, 0);
    copy_rows(values_, 0, 0, before * kPageRows, values, 0);
  }
  keys_ = keys;
  values_ = values;
  users_.resize(pages, 0);
  for (int64_t page = pages - 1; page >= before; --page) free_.push_back(static_cast<int32_t>(page));
}

int32_t KeyValueState::take_page() {
  const int32_t page = free_.back();
  free_.pop_back();
  users_[page] = 1;
  return page;
}

void KeyValueState::leave_page(int32_t page) {
  if (--users_[page] == 0) free_.push_back(page);
}

bool KeyValueState::parts(int64_t sequence) const {
  return lengths_[sequence] % kPageRows != 0 && users_[pages_[sequence].back()] > 1;
}

int64_t KeyValueState::pages_for(std::span<const int32_t> counts) const {
  int64_t needed = 0;
  for (int64_t s = 0; s < sequences(); ++s) {
    if (counts[s] == 0) continue;
    needed += (lengths_[s] + counts[s] + kPageRows - 1) / kPageRows - std::ssize(pages_[s]) + parts(s);
  }
  return needed;
}

void KeyValueState::append(const Heads& k, const Heads& v, std::span<const int32_t> offsets) {
  check(static_cast<int64_t>(offsets.size()) == sequences() + 1, "key/value state: {} sequences, got {}",
        sequences(), offsets.size() - 1);
  check(!keys_.defined() || keys_.dtype() == k.x.dtype(), "key/value state: holds {}, got {}",
        name_of(keys_.dtype()), name_of(k.x.dtype()));
  std::vector<int32_t> counts;
  for (int64_t s = 0; s < sequences(); ++s) counts.push_back(offsets[s + 1] - offsets[s]);
  const int64_t missing = pages_for(counts) - std::ssize(free_), pages = std::ssize(users_);
  if (missing > 0 || !keys_.defined()) grow(pages + std::max({missing, pages / 2, int64_t{1}}), k.x.dtype());
  for (int64_t s = 0; s < sequences(); ++s) {
    if (counts[s] == 0) continue;
    std::vector<int32_t>& own = pages_[s];
    if (parts(s)) {
      const int32_t shared = own.back();
      own.back() = take_page();
      copy_rows(keys_, shared * kPageRows, 0, lengths_[s] % kPageRows, keys_, own.back() * kPageRows);
      copy_rows(values_, shared * kPageRows, 0, lengths_[s] % kPageRows, values_, own.back() * kPageRows);
      leave_page(shared);
    }
    for (int64_t row = offsets[s]; row < offsets[s + 1];) {
      if (lengths_[s] % kPageRows == 0) own.push_back(take_page());
      const int64_t rows = std::min<int64_t>(offsets[s + 1] - row, kPageRows - lengths_[s] % kPageRows);
      const int64_t to = row_of(s, lengths_[s]);
      copy_rows(k.x, row, k.column, rows, keys_, to);
      copy_rows(v.x, row, v.column, rows, values_, to);
      lengths_[s] += static_cast<int32_t>(rows);
      row += rows;
    }
  }
}

KeyLayout KeyValueState::layout() const {
  KeyLayout layout;
  layout.lengths = lengths_;
  layout.block_rows = kPageRows;
  for (const std::vector<int32_t>& own : pages_) {
    layout.block_offsets.push_back(static_cast<int32_t>(layout.blocks.size()));
    for (const int32_t page : own) layout.blocks.push_back(page * kPageRows);
  }
  return layout;
}

void KeyValueState::own() {
  if (!filled()) return;
  std::vector<int32_t> from, to(users_.size(), 0);
  for (size_t page = 0; page < users_.size(); ++page)
    if (users_[page] > 0) {
      to[page] = static_cast<int32_t>(from.size());
      from.push_back(static_cast<int32_t>(page));
    }
  const Tensor keys = keys_, values = values_;
  const std::vector<int32_t> users = users_;
  keys_ = values_ = Tensor();
  users_.clear();
  free_.clear();
  grow(std::max<int64_t>(1, std::ssize(from)), keys.dtype());
  for (size_t page = 0; page < from.size(); ++page) {
    const int64_t row = static_cast<int64_t>(page) * kPageRows;
    copy_rows(keys, from[page] * kPageRows, 0, kPageRows, keys_, row);
    copy_rows(values, from[page] * kPageRows, 0, kPageRows, values_, row);
    users_[take_page()] = users[from[page]];  // in order: the lowest is taken first
  }
  for (std::vector<int32_t>& own : pages_)
    for (int32_t& page : own) page = to[page];
}

std::unique_ptr<LayerState> KeyValueState::fork() const {
  auto copy = std::make_unique<KeyValueState>(*this);
  copy->own();
  return copy;
}

void KeyValueState::reorder(std::span<const int32_t> sources) {
  std::vector<int32_t> lengths;
  std::vector<std::vector<int32_t>> pages;
  for (const int32_t s : sources) check(s >= 0 && s < sequences(), "reorder: no sequence {}", s);
  for (const int32_t s : sources) {
    lengths.push_back(lengths_[s]);
    pages.push_back(pages_[s]);
    for (const int32_t page : pages_[s]) ++users_[page];
  }
  for (const std::vector<int32_t>& own : pages_)
    for (const int32_t page : own) leave_page(page);
  lengths_ = std::move(lengths);
  pages_ = std::move(pages);
  if (4 * free_.size() > 3 * users_.size()) own();  // pages that were given up cost memory and time
}

void KeyValueState::join(const LayerState& state, std::span<const int32_t> sequences) {
  const auto& other = joined_state<KeyValueState>(state);
  check(other.kv_heads_ == kv_heads_ && other.d_qk_ == d_qk_ && other.d_vo_ == d_vo_ &&
            (!filled() || !other.filled() || keys_.dtype() == other.keys_.dtype()),
        "join: a key/value state of other heads or another type");
  std::map<int32_t, int32_t> ours;  // our page for each of the other's
  for (const int32_t s : sequences) {
    check(s >= 0 && s < other.sequences(), "join: no sequence {}", s);
    for (const int32_t page : other.pages_[s]) ours.emplace(page, -1);
  }
  const int64_t missing = std::ssize(ours) - std::ssize(free_), pages = std::ssize(users_);
  if (!ours.empty() && (missing > 0 || !filled()))
    grow(pages + std::max({missing, pages / 2, int64_t{1}}), other.keys_.dtype());
  for (const int32_t s : sequences) {
    std::vector<int32_t>& own = pages_.emplace_back();
    for (const int32_t theirs : other.pages_[s]) {
      int32_t& page = ours.at(theirs);
      if (page < 0) {
        page = take_page();
        copy_rows(other.keys_, theirs * kPageRows, 0, kPageRows, keys_, page * kPageRows);
        copy_rows(other.values_, theirs * kPageRows, 0, kPageRows, values_, page * kPageRows);
      } else {
        ++users_[page];
      }
      own.push_back(page);
    }
    lengths_.push_back(other.lengths_[s]);
  }
}

void KeyValueState::truncate(int64_t sequence, int64_t length) {
  check(sequence >= 0 && sequence < sequences(), "truncate: no sequence {}", sequence);
  check(length >= 0 && length <= lengths_[sequence], "truncate: sequence {} has {} positions, got {}",
        sequence, lengths_[sequence], length);
  lengths_[sequence] = static_cast<int32_t>(length);
  std::vector<int32_t>& own = pages_[sequence];
  for (; std::ssize(own) * kPageRows >= length + kPageRows; own.pop_back()) leave_page(own.back());
}

int64_t KeyValueState::bytes() const {
  if (!filled()) return 0;
  const int64_t pages = std::ssize(users_) - std::ssize(free_);
  return pages * kPageRows * kv_heads_ * (d_qk_ + d_vo_) * static_cast<int64_t>(size_of(keys_.dtype()));
}

std::vector<Tensor> KeyValueState::save() const {
  const Tensor lengths = Tensor::of({sequences()}, lengths_);
  if (!keys_.defined()) return {lengths};
  const std::vector<int32_t> offsets = Layout::of(lengths_).offsets;
  Tensor keys = Tensor::empty({offsets.back(), keys_.width()}, keys_.dtype());
  Tensor values = Tensor::empty({offsets.back(), values_.width()}, keys_.dtype());
  for (int64_t s = 0; s < sequences(); ++s)
    for (int64_t j = 0; j < lengths_[s]; j += kPageRows) {
      const int64_t rows = std::min<int64_t>(kPageRows, lengths_[s] - j);
      copy_rows(keys_, row_of(s, j), 0, rows, keys, offsets[s] + j);
      copy_rows(values_, row_of(s, j), 0, rows, values, offsets[s] + j);
    }
  return {lengths, keys, values};
}

void KeyValueState::load(const std::vector<Tensor>& saved) {
  check_saved(saved, kv_heads_ * d_qk_, kv_heads_ * d_vo_);
  const auto of = saved[0].values<int32_t>();
  const std::vector<int32_t> lengths(of.begin(), of.end());
  KeyValueState next(std::ssize(lengths), kv_heads_, d_qk_, d_vo_);
  if (saved.size() == 3)
    next.append({saved[1], 0, kv_heads_, d_qk_}, {saved[2], 0, kv_heads_, d_vo_},
                Layout::of(lengths).offsets);
  *this = std::move(next);
}

SourceState::SourceState(int64_t sequences, int64_t kv_heads, int64_t d_qk, int64_t d_vo)
    : keys_{{}, 0, kv_heads, d_qk},
      values_{{}, 0, kv_heads, d_vo},
      lengths_(sequences, 0),
      begins_(sequences, 0) {}

void SourceState::append(const Heads& k, const Heads& v, std::span<const int32_t> offsets) {
  check(!filled(),
        "source state: a source has its keys already, and all that is decoded from it shares them");
  check(static_cast<int64_t>(offsets.size()) == sequences() + 1, "source state: {} sequences, got {}",
        sequences(), offsets.size() - 1);
  keys_ = k;
  values_ = v;
  keys_.x = k.x.detach();  // without the graph that they were computed by
  values_.x = v.x.detach();
  for (int64_t s = 0; s < sequences(); ++s) {
    begins_[s] = offsets[s];
    lengths_[s] = offsets[s + 1] - offsets[s];
  }
}

KeyLayout SourceState::layout() const {
  KeyLayout layout;
  layout.lengths = lengths_;
  layout.blocks.assign(begins_.begin(), begins_.end());
  layout.block_offsets.resize(begins_.size());
  std::iota(layout.block_offsets.begin(), layout.block_offsets.end(), 0);
  return layout;
}

void SourceState::reorder(std::span<const int32_t> sources) {
  std::vector<int32_t> lengths, begins;
  for (const int32_t s : sources) {
    check(s >= 0 && s < sequences(), "reorder: no sequence {}", s);
    lengths.push_back(lengths_[s]);
    begins.push_back(begins_[s]);
  }
  lengths_ = std::move(lengths);
  begins_ = std::move(begins);
}

void SourceState::join(const LayerState& state, std::span<const int32_t> sequences) {
  const auto& other = joined_state<SourceState>(state);
  for (const int32_t s : sequences) check(s >= 0 && s < other.sequences(), "join: no sequence {}", s);
  check(filled() == other.filled() || this->sequences() == 0,
        "join: a source state without the keys of its sources");
  // The runs of rows in use of both, each once: sequences of one source share it.
  struct Run {
    const SourceState* of;
    int32_t begin, length;
  };
  std::vector<Run> runs;
  std::vector<int32_t> lengths, begins, own(lengths_.size());
  std::iota(own.begin(), own.end(), 0);
  int32_t rows = 0;
  const auto add = [&](const SourceState& of, std::span<const int32_t> all) {
    std::map<int32_t, int32_t> places;
    for (const int32_t i : all) {
      const auto [at, is_new] = places.try_emplace(of.begins_[i], rows);
      if (is_new) {
        runs.push_back({&of, of.begins_[i], of.lengths_[i]});
        rows += of.lengths_[i];
      }
      begins.push_back(at->second);
      lengths.push_back(of.lengths_[i]);
    }
  };
  add(*this, own);
  add(other, sequences);
  if (other.filled()) {
    const auto joined = [&](const auto& heads_of) {
      const Heads& first = heads_of(other);
      Tensor out = Tensor::empty({rows, first.heads * first.width}, first.x.dtype());
      int32_t to = 0;
      for (const Run& run : runs) {
        const Heads& from = heads_of(*run.of);
        check(from.x.dtype() == first.x.dtype(), "join: a source state of another type");
        copy_rows(from.x, run.begin, from.column, run.length, out, to);
        to += run.length;
      }
      return Heads{out, 0, first.heads, first.width};
    };
    const Heads keys = joined([](const SourceState& s) -> const Heads& { return s.keys_; });
    const Heads values = joined([](const SourceState& s) -> const Heads& { return s.values_; });
    keys_ = keys;
    values_ = values;
  }
  lengths_ = std::move(lengths);
  begins_ = std::move(begins);
}

int64_t SourceState::bytes() const {
  return filled()
             ? static_cast<int64_t>(
                   keys_.x.bytes() +
                   (values_.x.value_bytes().data() == keys_.x.value_bytes().data() ? 0 : values_.x.bytes()))
             : 0;
}

std::vector<Tensor> SourceState::save() const {
  const Tensor lengths = Tensor::of({sequences()}, lengths_);
  if (!filled()) return {lengths};
  const std::vector<int32_t> offsets = Layout::of(lengths_).offsets;
  const auto rows_of = [&](const Heads& heads) {
    Tensor out = Tensor::empty({offsets.back(), heads.heads * heads.width}, heads.x.dtype());
    for (int64_t s = 0; s < sequences(); ++s)
      copy_rows(heads.x, begins_[s], heads.column, lengths_[s], out, offsets[s]);
    return out;
  };
  return {lengths, rows_of(keys_), rows_of(values_)};
}

void SourceState::load(const std::vector<Tensor>& saved) {
  check_saved(saved, keys_.heads * keys_.width, values_.heads * values_.width);
  const auto of = saved[0].values<int32_t>();
  const std::vector<int32_t> lengths(of.begin(), of.end());
  SourceState next(std::ssize(lengths), keys_.heads, keys_.width, values_.width);
  if (saved.size() == 3)
    next.append({saved[1].clone(), 0, keys_.heads, keys_.width},
                {saved[2].clone(), 0, values_.heads, values_.width}, Layout::of(lengths).offsets);
  *this = std::move(next);
}

}  // namespace qkv
