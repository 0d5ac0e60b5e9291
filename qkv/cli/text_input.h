// Texts that a command makes predictions for, and the printing of the predictions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "qkv/base/json.h"
#include "qkv/base/json_value.h"
#include "qkv/cli/columns_of_run.h"
#include "qkv/cli/options.h"
#include "qkv/infer/predict.h"
#include "qkv/train/config/config.h"

namespace qkv {

// Input of a predicting command. Lines: one text each, two texts separated by a tab, or one JSON object a
// line. Rows: a file with named columns (.csv, .tsv, .jsonl), printed with the predictions as extra
// columns.
struct TextInput {
  // Set by the command.
  Objective objective = Objective::classify;          // objective of runs that read such texts
  std::vector<std::string> first = {"text"}, second;  // default names for a text and a pair's second
  // A second text follows a tab in a line, or is a column or JSON member; aside: never after a tab.
  enum class Second { none, possible, needed, aside } pairs = Second::none;
  std::string DataConfig::*column = &DataConfig::text_column;  // column with a row's text
  bool silent = false;                                         // predictions are not printed
  // Set by the options.
  std::string file;  // empty: standard input
  bool json = false, json_lines = false;
  int64_t lines_at_once = 0;
  DataConfig columns;  // columns of rows; empty names: those of the run, or the defaults
  Given given;         // true if an option of the command was given
};

// Declares --file, --lines, --json, --json-lines and the options of rows.
void add_text_input(Command& command, TextInput& in);

// True if the input is a file of rows.
bool reads_rows(const TextInput& in);

// Fills settings of rows that no option gives from the configuration of the run that `dir` is, or is a
// checkpoint of.
void take_settings_of_run(TextInput& in, const std::string& dir);

// One text, which may be empty.
struct InputText {
  TextPair text;
  std::string place;   // NAME:LINE
  int64_t number = 0;  // its number in the input, from 1
};

// The output for one text: `line` with its line end, or, for a row, the extra columns by name.
struct Prediction {
  std::string line;
  OrderedJson columns;
};

// Calls `f` with some texts at a time and prints the predictions that it returns, one for each. Prints
// lines, or the input's rows with the extra columns.
void predict_texts(const TextInput& in,
                   const std::function<std::vector<Prediction>(const std::vector<InputText>&)>& f);

// Prints a note on stderr if `cut` texts were longer than `tokens` tokens and truncated.
void note_cut(int64_t cut, int64_t tokens);

// A JSON object as a line.
std::string json_line(const OrderedJson& json);

}  // namespace qkv
