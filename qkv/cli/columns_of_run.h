// Column names and file formats from a run's configuration: commands need not be told twice.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "qkv/train/config/config.h"

namespace qkv {

using Given = std::function<bool(const char* option)>;

// The only data set of a run with this objective; null where there is none, or several.
const DataConfig* data_of(const TrainConfig& run, Objective objective);

// Sets the format and the delimiter that no option gave: a file without a telling name holds what those of
// the run do, and rows of one format have one delimiter.
void take_format(DataConfig& columns, const std::string& path, const DataConfig& run, const Given& given);

// Sets the columns that no option gave to those of the run, or to the usual name for this objective if the
// file, which has the columns `header`, lacks that of the run and has the usual one.
void take_columns(DataConfig& columns, const std::string& path, std::vector<std::string> header,
                  const DataConfig& run, Objective objective, const Given& given);

// The same of the columns of tagged words, in a file of the same format.
void take_word_columns(DataConfig& columns, const std::string& path, const DataConfig& run,
                       const Given& given);

}  // namespace qkv
