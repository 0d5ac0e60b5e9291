#pragma once

// Names of a computation's values. The specification names them as it goes, in the paper's symbols, and
// whoever watches sees each one: "decoder.layer[1].attention.Q^2" are the queries of the second head.

#include <functional>
#include <string>
#include <utility>

#include "formal/notation.h"

namespace qkv::formal {

// Sees a value, with its name in full.
using Watch = std::function<void(const std::string& name, const Matrix<double>& value)>;

// Who watches the computations of a thread, and where in the model they are.
struct Watching {
  Watch watch;  // null: nobody
  std::string scope;
};
inline Watching& watching() {
  thread_local Watching w;
  return w;
}

// While it lives, names begin with `name` and a dot.
class Scope {
 public:
  explicit Scope(const std::string& name) : before_(watching().scope) {
    if (watching().watch) watching().scope += name + ".";
  }
  ~Scope() { watching().scope = before_; }
  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;

 private:
  std::string before_;
};

// "name[i]", i from 1.
inline std::string indexed(const char* name, std::size_t i) {
  return name + ("[" + std::to_string(i) + "]");
}

// The value itself.
template <typename T>
Matrix<T> named(const std::string& name, Matrix<T> M) {
  if (const Watching& w = watching(); w.watch)
    w.watch(w.scope + name, M.unaryExpr([](const T& x) { return value(x); }));
  return M;
}

// Calls f() with `watch` as who watches, and returns its result.
template <typename F>
auto watched(Watch watch, const F& f) {
  struct Restored {
    Watching before = watching();
    ~Restored() { watching() = before; }
  } const restored;
  watching() = {std::move(watch), {}};
  return f();
}

}  // namespace qkv::formal
