// Questions with choices, of which one is right.
#pragma once

#include <string>
#include <vector>

#include "qkv/train/corpora/examples.h"

namespace qkv {

// Reads questions from a file of rows. data.text_column has the question (or a text), data.second_column what
// stands between it and each choice. data.choice_columns names one column whose cells are JSON lists of
// texts (or objects with "text", a list, and "label", a list of their names), or one column per choice, where
// empty cells may follow the last choice. data.label_column says which choice is right, in all rows of the
// file alike: by its number from 0, its letter from A or its text, or by its name where choices have names.
// Throws Error naming file, line and column of what is missing, and of labels that can be read in two ways.
void read_choices(const std::string& path, const DataConfig& data, std::vector<Example>& out,
                  ReadExamples& found);
// The same of a file without labels: `right` of all is -1.
std::vector<Example> read_choices_alone(const std::string& path, const DataConfig& data, Notes* notes);

// Drops empty choices at the end, which a row with fewer choices than others has.
void drop_empty_end(std::vector<std::string>& choices);
// Throws Error naming the example's place if it has fewer than two choices, or an empty one.
void expect_choices(const Example& e);

// The pairs that a model reads: the question, and each choice, behind the second text if there is one.
std::vector<TextPair> texts_of_choices(const Example& e);

}  // namespace qkv
