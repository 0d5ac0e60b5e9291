// A pass of a model as text: each value with its symbol, its formula and its numbers.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "qkv/trace/trace.h"

namespace qkv {

// The names of what a pass of one sequence is about.
struct WalkLabels {
  // Pieces of the last stack's tokens, and of the encoder's in the order in which it reads them, with their
  // ids.
  std::vector<std::string> tokens = {}, source = {};
  std::vector<int32_t> ids = {}, source_ids = {};
  std::function<std::string(int64_t id)> piece = nullptr;  // that of any token
  std::vector<std::string> classes = {};
};

struct WalkOptions {
  int precision = 3;                 // digits behind the point
  int64_t columns = 8;               // most numbers of a row; 0: all
  int64_t best = 5;                  // likeliest tokens to show
  bool heat = false;                 // shades in place of numbers
  std::vector<int64_t> layers = {};  // blocks to show, from 0; empty: all
  std::vector<int64_t> heads = {};   // heads to show, from 0; empty: all
  std::vector<int64_t> tokens = {};  // rows to show, from 0; empty: all
};

// The text of all values of a trace, in order. REQUIRES: a pass of one sequence.
std::string walk_text(const ModelSpec& spec, const Trace& trace, const WalkLabels& labels,
                      const WalkOptions& options);

// True if options ask for this value: one of no block, or of a block that they name.
bool is_chosen(const ModelSpec& spec, const TracedValue& value, const WalkOptions& options);

// The names of a value's rows and columns, as far as they have any.
struct ValueNames {
  std::vector<std::string> rows = {}, columns = {};
};
ValueNames names_of(const ModelSpec& spec, const TracedValue& value, const WalkLabels& labels);

// The places of the highest numbers of a row, the highest first.
std::vector<int64_t> highest_places(Span<const float> row, int64_t count);

// A piece as people see it: spaces and line ends become signs, control characters their codes.
std::string shown_piece(const std::string& piece);

}  // namespace qkv
