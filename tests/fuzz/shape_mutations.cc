#include "tests/fuzz/shape_mutations.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>

#include "qkv/base/error.h"
#include "qkv/base/file.h"
#include "qkv/base/json_value.h"
#include "tests/fuzz/shape_forward.h"

namespace qkv::testing {
namespace {

using Ordered = nlohmann::ordered_json;

// All values below `root`, objects and lists included.
void collect(Ordered& root, std::vector<Ordered*>& out) {
  if (!root.is_structured()) return;
  for (Ordered& value : root) {
    out.push_back(&value);
    collect(value, out);
  }
}

Ordered other_type(Draw& d) {
  static const std::vector<Ordered> kValues = {nullptr,          true, 3, -0.5, "", "gelu", Ordered::array(),
                                               Ordered::object()};
  return d.of(kValues);
}

Ordered other_integer(int64_t v, Draw& d) {
  const int64_t doubled = std::abs(v / 2) > (int64_t{1} << 60) ? v : 2 * v;
  constexpr int64_t kLeast = std::numeric_limits<int64_t>::min(), kMost = std::numeric_limits<int64_t>::max();
  return d.of<int64_t>({0, 1, 2, 3, -1, std::max(v, kLeast + 1) - 1, std::min(v, kMost - 1) + 1, doubled,
                        v / 2, -std::max(v, kLeast + 1), 100000, int64_t{1} << 31, int64_t{1} << 40,
                        kMost - 1});
}

// Words of the same files, so that one family's word stands in another's place.
Ordered other_word(const std::vector<Ordered*>& all, Draw& d) {
  std::vector<std::string> words = {"",     "none",    "linear", "full_attention", "sliding_attention",
                                    "relu", "absolute"};
  for (const Ordered* value : all)
    if (value->is_string()) words.push_back(value->get<std::string>());
  return d.of(words);
}

void change(Ordered& value, const std::vector<Ordered*>& all, Draw& d) {
  if (d.chance(0.1) || value.empty()) {  // null, and lists and objects that hold nothing
    value = other_type(d);
  } else if (value.is_boolean()) {
    value = !value.get<bool>();
  } else if (value.is_number_integer()) {
    value = other_integer(value.get<int64_t>(), d);
  } else if (value.is_number()) {
    value = d.of<double>({0, -1, 1, 0.5, 1e-30, 1e30, 1e300, -value.get<double>(), 2 * value.get<double>()});
  } else if (value.is_string()) {
    value = other_word(all, d);
  } else if (d.chance(0.6)) {
    value.erase(std::next(value.begin(), d.between(0, std::ssize(value) - 1)));
  } else if (value.is_array()) {
    value.push_back(value[0]);
  } else {
    value.clear();
  }
}

std::string mutated(const std::string& document, Draw& d) {
  Ordered root = Ordered::parse(document);
  for (int64_t n = d.between(1, 3); n > 0; --n) {
    std::vector<Ordered*> all = {&root};
    collect(root, all);
    // The whole file is one value of many: it loses a key.
    change(*d.of(all), all, d);
    if (!root.is_object()) root = Ordered::object();
  }
  return root.dump(2);
}

}  // namespace

void run_model(const std::string& dir, Draw& d) {
  const ModelSpec spec = load_spec(dir);
  const auto model = load_model(dir, DType::f32);
  if (spec.order != Order::stack) return;
  const Case c = draw_case(spec, d);
  std::vector<std::string> words = {"--hidden-states"};
  if (!spec.recurrence.any()) words.emplace_back("--attentions");
  if (c.targets.defined()) words.emplace_back("--gradients");
  run_forward(dir, c.file, words);
  if (spec.architecture == Architecture::encoder || spec.output != Output::tokens) return;
  const Named in = inputs_of_generation(c);
  run_forward(dir, in,
              {"--generate", d.of<std::string>({"max_new_tokens=3", "max_new_tokens=3,num_beams=3"})});
}

void check_mutations(const std::string& dir, int64_t count, Draw& d, const std::function<void()>& run) {
  for (int64_t i = 0; i < count; ++i) {
    const std::string generation = dir + "/generation_config.json";
    const std::string path = d.chance(0.2) && file_exists(generation) ? generation : dir + "/config.json";
    const std::string original = read_file(path), document = mutated(original, d);
    write_file_atomically(path, document);
    try {
      run();
    } catch (const Error&) {
    } catch (const std::exception& e) {
      fail("{} with {}:\n{}", e.what(), path, document);
    }
    write_file_atomically(path, original);
  }
}

}  // namespace qkv::testing
