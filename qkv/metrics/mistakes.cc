#include "qkv/metrics/mistakes.h"

#include "qkv/base/json_value.h"

namespace qkv {

std::string score_name(const Mistake& mistake) {
  return mistake.answer ? "f1" : mistake.number ? "error" : "probability";
}

OrderedJson mistakes_json(const std::vector<Mistake>& mistakes) {
  OrderedJson out = OrderedJson::array();
  for (const Mistake& m : mistakes) {
    OrderedJson one = {{"place", m.place}, {"text", m.text}};
    if (!m.second.empty()) one["second"] = m.second;
    if (m.word) one["word"] = *m.word;
    one["true"] = m.right;
    one["predicted"] = m.predicted ? OrderedJson(*m.predicted) : OrderedJson(nullptr);
    one[score_name(m)] = m.score;
    out.push_back(std::move(one));
  }
  return out;
}

std::vector<Mistake> read_mistakes(const JsonField& array) {
  std::vector<Mistake> out;
  for (size_t i = 0; i < array.size(); ++i) {
    const JsonField one = array.at(i);
    Mistake m;
    m.place = one["place"].string();
    m.text = one["text"].string();
    m.right = one["true"].string();
    if (const auto second = one.find("second")) m.second = second->string();
    if (const auto word = one.find("word")) m.word = word->string();
    if (const auto predicted = one.find("predicted")) m.predicted = predicted->string();
    m.answer = one.find("f1").has_value();
    m.number = one.find("error").has_value();
    if (const auto score = one.find(score_name(m))) m.score = score->number();
    out.push_back(std::move(m));
  }
  return out;
}

}  // namespace qkv
