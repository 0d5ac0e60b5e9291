// shape_fuzz: random models of odd shapes, each saved, loaded, run by `qkv forward` with all its outputs,
// trained and decoded, then run again with a damaged config.json. A case is a function of the seed and its
// number; each runs in its own process, so that a crash counts like any other failure.
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>

#include "qkv/base/error.h"
#include "qkv/base/parallel.h"
#include "tests/fuzz/shape_checks.h"
#include "tests/fuzz/shape_mutations.h"

namespace qkv::testing {
namespace {

constexpr const char* kUsage =
    "usage: shape_fuzz [--count N] [--seed S] [--only FAMILY] [--of DIR] [--case K]\n"
    "Runs N random models (default 200) from seed S (default 1). --only draws all of them from one family;\n"
    "--of damages the config.json of a model that exists, in a copy, instead of drawing any.\n"
    "--case runs the one case K in this process, for a debugger.\n";
constexpr uint32_t kShapeSite = 1, kCheckSite = 2;
constexpr unsigned kSeconds = 120;  // time limit of a case

struct Arguments {
  int64_t count = 200;
  uint64_t seed = 1;
  std::string only, of;
  std::optional<int64_t> number;
};

template <typename T>
T number(const std::string& option, const std::string& value) {
  T n{};
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), n);
  if (error != std::errc() || end != value.data() + value.size())
    throw UsageError(fmt::format("{}: expected a number, got '{}'", option, value));
  return n;
}

Arguments parse(int argc, char** argv) {
  Arguments a;
  for (int i = 1; i < argc; i += 2) {
    const std::string option = argv[i];
    if (i + 1 == argc) throw UsageError(fmt::format("{}: expected a value\n{}", option, kUsage));
    const std::string value = argv[i + 1];
    if (option == "--count")
      a.count = number<int64_t>(option, value);
    else if (option == "--seed")
      a.seed = number<uint64_t>(option, value);
    else if (option == "--only")
      a.only = value;
    else if (option == "--of")
      a.of = value;
    else if (option == "--case")
      a.number = number<int64_t>(option, value);
    else
      throw UsageError(fmt::format("{}: no such option\n{}", option, kUsage));
  }
  return a;
}

// A drawn model that check_spec() accepts.
struct Drawn {
  std::string family;
  ModelSpec spec, vision;  // vision: for CLIP
  SpecialIds ids;
  int64_t rejected = 0;  // number of rejected draws before it
};

Drawn draw_case(const Arguments& a, int64_t k) {
  const auto& all = shape_families();
  Draw draw(a.seed, static_cast<uint64_t>(k), kShapeSite);
  Drawn out;
  out.family = a.only.empty() ? all[static_cast<size_t>(k) % all.size()] : a.only;
  for (; out.rejected < 1000; ++out.rejected) {
    const bool clip = out.family == "clip";
    out.spec = clip ? draw_clip_text(draw) : draw_shape(out.family, draw);
    if (clip) out.vision = draw_clip_vision(draw);
    out.ids = draw_ids(out.spec, draw);
    try {
      check_spec(out.spec);
      if (clip) check_spec(out.vision);
      return out;
    } catch (const Error&) {
    }
  }
  fail("{}: check_spec() rejects every model", out.family);
}

// Copies the model in `from`, damages it in one place, and prints the result.
void check_damaged(const std::string& from, const std::string& dir, Draw& draw) {
  for (const char* name : {"/config.json", "/generation_config.json", "/model.safetensors"})
    if (std::filesystem::exists(from + name)) std::filesystem::copy_file(from + name, dir + name);
  check_mutations(dir, 1, draw, [&] {
    try {
      run_model(dir, draw);
      fmt::print("  computed\n");
    } catch (const Error& e) {
      fmt::print("  rejected: {}\n", e.what());
      throw;
    }
  });
}

// Runs a case. Returns 0 if it passes.
int run_case(const Arguments& a, int64_t k, const Drawn& drawn) {
  set_num_threads(2);
  const std::string dir =
      (std::filesystem::temp_directory_path() / fmt::format("shape_fuzz_{}", getpid())).string();
  std::filesystem::remove_all(dir);
  std::filesystem::create_directories(dir);
  Draw draw(a.seed, static_cast<uint64_t>(k), kCheckSite);
  int status = 0;
  try {
    if (!a.of.empty())
      check_damaged(a.of, dir, draw);
    else if (drawn.family == "clip")
      check_clip(drawn.spec, drawn.vision, draw, dir);
    else
      check_shape(drawn.spec, drawn.ids, draw, dir);
  } catch (const std::exception& e) {
    fmt::print("  FAILED: {}\n", e.what());
    status = 1;
  }
  std::filesystem::remove_all(dir);
  std::fflush(nullptr);
  return status;
}

// The same in its own process. No thread may run before it, because fork() would lose it.
bool passes(const Arguments& a, int64_t k, const Drawn& drawn) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) fail("fork: no process for case {}", k);
  if (child == 0) {
    alarm(kSeconds);
    _exit(run_case(a, k, drawn));
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFSIGNALED(status))
    fmt::print("  FAILED: signal {}{}\n", WTERMSIG(status),
               WTERMSIG(status) == SIGALRM ? fmt::format(", after {} s", kSeconds) : "");
  else if (WEXITSTATUS(status) > 1)
    fmt::print("  FAILED: exit status {}\n", WEXITSTATUS(status));
  std::filesystem::remove_all(std::filesystem::temp_directory_path() / fmt::format("shape_fuzz_{}", child));
  return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

std::string replay_of(const Arguments& a, int64_t k) {
  return fmt::format("shape_fuzz --seed {}{}{} --case {}", a.seed, a.only.empty() ? "" : " --only " + a.only,
                     a.of.empty() ? "" : " --of " + a.of, k);
}

int run(const Arguments& a) {
  int64_t passed = 0, rejected = 0;
  std::vector<std::string> failed;
  std::map<std::string, int64_t> types;
  const int64_t first = a.number.value_or(0), end = a.number ? first + 1 : a.count;
  for (int64_t k = first; k < end; ++k) {
    const Drawn drawn = a.of.empty() ? draw_case(a, k) : Drawn{};
    rejected += drawn.rejected;
    if (a.of.empty()) {
      const bool clip = drawn.family == "clip";
      const std::string type = clip ? "clip" : family_for(drawn.spec).model_type;
      ++types[type];
      fmt::print("{}: {}, saved as {}: {}{}\n", replay_of(a, k), drawn.family, type,
                 description_of(drawn.spec), clip ? " " + description_of(drawn.vision) : "");
    } else {
      fmt::print("{}\n", replay_of(a, k));
    }
    if (a.number ? run_case(a, k, drawn) == 0 : passes(a, k, drawn))
      ++passed;
    else
      failed.push_back(replay_of(a, k) + (a.of.empty() ? ": " + drawn.family : ""));
  }
  if (!types.empty()) fmt::print("saved as:");
  for (const auto& [type, n] : types) fmt::print(" {} {}", type, n);
  if (!types.empty()) fmt::print("\n");
  for (const std::string& line : failed) fmt::print("failed: {}\n", line);
  const int64_t cases = end - first;
  fmt::print("{} passed, {} failed ({} drawings rejected by check_spec)\n", passed, failed.size(), rejected);
  if (rejected > cases && cases >= 100) {
    fmt::print("more than half of the drawings were rejected: draw models that make sense\n");
    return 1;
  }
  return failed.empty() ? 0 : 1;
}

}  // namespace
}  // namespace qkv::testing

int main(int argc, char** argv) {
  try {
    return qkv::testing::run(qkv::testing::parse(argc, argv));
  } catch (const std::exception& e) {
    std::fprintf(stderr, "shape_fuzz: %s\n", e.what());
    return 2;
  }
}
