// Matrices of a trace as one picture: heat maps with names of rows and columns, as SVG.
#pragma once

#include <string>
#include <vector>

#include "qkv/trace/walk.h"

namespace qkv {

struct Panel {
  std::string title = {};
  std::vector<std::string> rows = {}, columns = {};  // empty: no names
  std::vector<std::vector<double>> values = {};      // [rows][columns]; infinite and NaN: left white
  double full = 0;  // the number that has the full colour; 0: the largest size
  std::vector<std::vector<std::string>> texts = {};  // words in the cells; empty: none
};

// The panels side by side, and below each other where they would be wide. Colours run from white at 0 to blue
// at the panel's full number, and to orange for negative ones.
// The picture needs no font, style sheet or network, and follows light and dark pages.
std::string draw_panels(const std::vector<Panel>& panels);

// The values of a trace that the options choose: a panel for each, or for each head; of logits and
// probabilities the likeliest tokens. REQUIRES: a pass of one sequence.
std::vector<Panel> panels_of(const ModelSpec& spec, const Trace& trace, const WalkLabels& labels,
                             const WalkOptions& options);

}  // namespace qkv
