#include "qkv/cli/questions.h"

#include <fmt/format.h>

#include "qkv/base/json_value.h"
#include "qkv/cli/console.h"

namespace qkv {
namespace {

constexpr std::string_view kKeys[] = {"input", "output", "rationale", "adapter"};

std::string without_spaces_around(const std::string& text) {
  constexpr const char* kSpaces = " \t\r\n";
  const size_t begin = text.find_first_not_of(kSpaces);
  return begin == text.npos ? "" : text.substr(begin, text.find_last_not_of(kSpaces) + 1 - begin);
}

std::string dump_line(const OrderedJson& json) {
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace

std::vector<Question> read_questions(const std::string& file) {
  std::vector<Question> questions;
  read_json_lines(file, [&](const Json& value, const std::string& place) {
    const JsonField line(value, place);
    line.expect_keys(kKeys);
    Question q{line["input"].string(), std::nullopt, place, line.string_or("adapter", "")};
    if (const auto output = line.find("output"))
      q.output = output->json().is_number() ? output->json().dump() : output->string();
    questions.push_back(std::move(q));
  });
  check(!questions.empty(), "{}: holds no question", input_name(file));
  return questions;
}

void AnswerCount::add(const Question& question, const std::vector<std::optional<std::string>>& answers,
                      const std::vector<std::string>& texts) {
  std::vector<std::optional<std::string>> trimmed;
  for (const auto& a : answers) trimmed.push_back(a ? std::optional(without_spaces_around(*a)) : a);
  const std::vector<Vote> votes = count_votes(trimmed);
  const std::optional<std::string> answer = votes.empty() ? std::nullopt : std::optional(votes[0].answer);
  const bool right = answer && question.output && *answer == without_spaces_around(*question.output);
  ++questions_;
  known_ += question.output.has_value();
  right_ += right;
  unanswered_ += !answer;
  if (json_) {
    OrderedJson line = {
        {"question", questions_}, {"input", question.input}, {"answer", answer ? Json(*answer) : Json()}};
    if (question.output) {
      line["output"] = *question.output;
      line["right"] = right;
    }
    if (answers.size() > 1) line["votes"] = OrderedJson::array();
    if (answers.size() > 1)
      for (const Vote& v : votes) line["votes"].push_back({{"answer", v.answer}, {"count", v.count}});
    line["texts"] = texts;
    print(dump_line(line));
    return;
  }
  const std::string shown = answer ? one_line(*answer) : "(no answer)";
  const std::string judged = !question.output ? "" : right ? "right  " : "wrong  ";
  const std::string wanted =
      question.output && !right ? fmt::format(" (is {})", one_line(*question.output)) : "";
  const std::string counted =
      answers.size() > 1 && answer ? fmt::format(" [{} of {}]", votes[0].count, answers.size()) : "";
  print(fmt::format("{}{}  ->  {}{}{}\n", judged, one_line(question.input), shown, counted, wanted));
}

void AnswerCount::print_summary() const {
  if (known_ == 0) return;
  const double accuracy = static_cast<double>(right_) / static_cast<double>(known_);
  if (json_) {
    print(dump_line({{"questions", questions_},
                     {"known", known_},
                     {"right", right_},
                     {"unanswered", unanswered_},
                     {"accuracy", accuracy}}));
    return;
  }
  print(fmt::format("accuracy {:.4f}: {} of {} answers are right{}\n", accuracy, right_, known_,
                    unanswered_ > 0 ? fmt::format(", {} without an answer", unanswered_) : ""));
}

}  // namespace qkv
