// qkv trace: the heads of a model, by their weights and by what they attend to in texts.
#pragma once

#include "qkv/cli/trace_command.h"

namespace qkv {

// Answers --circuits, --roles and --relation.
void answer_circuits(const TraceOptions& o, const TracedModel& m);
void answer_roles(const TraceOptions& o, const TracedModel& m);
void answer_relation(const TraceOptions& o, const TracedModel& m);

}  // namespace qkv
