// Texts that a command predicts something for, and predictions printed beside them.
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

// Input of a predicting command. Lines: one text each, or two divided by a tab, or a JSON object a line.
// Rows: a file with named columns (.csv, .tsv, .jsonl), which is printed with the predictions as further
// columns.
struct TextInput {
  // Set by the command.
  Objective objective = Objective::classify;          // of runs that read such texts
  std::vector<std::string> first = {"text"}, second;  // usual names of a text and of a pair's other text
  // In a line behind a tab, in a column or a JSON member; aside: there alone.
  enum class Second { none, possible, needed, aside } pairs = Second::none;
  std::string DataConfig::*column = &DataConfig::text_column;  // of a row's text
  bool silent = false;                                         // predictions are not printed
  // Set by the options.
  std::string file;  // empty: standard input
  bool json = false, json_lines = false;
  int64_t lines_at_once = 0;
  DataConfig columns;  // of rows; without names: by the run, or the usual ones
  Given given;         // an option of the command
};

// Declares --file, --lines, --json, --json-lines and the options of rows.
void add_text_input(Command& command, TextInput& in);

// True where the input is a file of rows.
bool reads_rows(const TextInput& in);

// Fills what no option says of rows from the configuration of the run that `dir` is, or is a checkpoint of.
void take_settings_of_run(TextInput& in, const std::string& dir);

// One text; there may be no character in it.
struct InputText {
  TextPair text;
  std::string place;   // NAME:LINE
  int64_t number = 0;  // in the input, from 1
};

// The output for one text: `line` with its line's end, or for a row the further columns by their names.
struct Prediction {
  std::string line;
  OrderedJson columns;
};

// Calls `f` with some texts at a time and prints what it returns, a prediction for each: their lines, or the
// input's rows with their columns.
void predict_texts(const TextInput& in,
                   const std::function<std::vector<Prediction>(const std::vector<InputText>&)>& f);

// One note on stderr where texts were longer than so many tokens, and cut.
void note_cut(int64_t cut, int64_t tokens);

// A JSON object as a line.
std::string json_line(const OrderedJson& json);

}  // namespace qkv
