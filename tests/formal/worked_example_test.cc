// The worked numeric example, step by step, against its printed tables (tests/golden/worked_example.json),
// and the list of what disagrees in it.

#include "formal/worked_example.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <string>
#include <vector>

#include "formal/attention.h"
#include "formal/special_tokens.h"
#include "qkv/base/json_value.h"
#include "tests/source_dir.h"

namespace qkv::formal::worked_example::worked_example_test {
namespace {

const nlohmann::json& tables() {
  static const nlohmann::json json = [] {
    std::ifstream file(qkv::testing::source_dir() + "/tests/golden/worked_example.json");
    return nlohmann::json::parse(file);
  }();
  return json;
}

std::vector<std::string> words(const std::string& name) {
  return tables().at(name).get<std::vector<std::string>>();
}

// A printed table; null is minus infinity.
Rows table(const std::string& name) {
  const nlohmann::json& rows = tables().at(name);
  Rows M(static_cast<Index>(rows.size()), static_cast<Index>(rows.at(0).size()));
  for (Index i = 0; i < M.rows(); ++i) {
    for (Index j = 0; j < M.cols(); ++j) {
      const nlohmann::json& cell = rows.at(static_cast<std::size_t>(i)).at(static_cast<std::size_t>(j));
      M(i, j) = cell.is_null() ? kMinusInfinity : cell.get<double>();
    }
  }
  return M;
}

// A table printed with a column per token, as rows.
Rows transposed_table(const std::string& name) {
  return table(name).transpose();
}

Vector<double> vector(const std::string& name) {
  const auto values = tables().at(name).get<std::vector<double>>();
  return Eigen::Map<const Vector<double>>(values.data(), static_cast<Index>(values.size()));
}

// Half a unit of the last of `digits` printed digits. The slides take every step from the table that they
// print before it (all but one: see Softmax), so that the rounding of a step's inputs does not enter, and
// half a unit is the whole bound. To it comes what double itself rounds: fewer than ten operations on numbers
// below 100, each within 1e-14, and a tie such as 3.805 may fall on either side by that much: 1e-12 covers
// it.
double half_unit(int digits) {
  return 0.5 * std::pow(10.0, -digits) + 1e-12;
}

// How many cells differ by more than half a unit.
int disagreements(const Rows& recomputed, const Rows& printed, int digits) {
  EXPECT_EQ(recomputed.rows(), printed.rows());
  EXPECT_EQ(recomputed.cols(), printed.cols());
  return static_cast<int>(((recomputed - printed).array().abs() > half_unit(digits)).count());
}

constexpr double kEpsilon = 0.0001;

TEST(WorkedExample, Step1Vocabulary) {
  EXPECT_EQ(tokenize("I drink and I know things."),
            (std::vector<std::string>{"I", "drink", "and", "I", "know", "things"}));
  const auto V = vocabulary(words("sentences"));
  EXPECT_EQ(V, words("vocabulary"));
  EXPECT_EQ(V.size(), 23u);
}

TEST(WorkedExample, Step2Encoding) {
  const auto by_id = words("tokens_by_id");
  EXPECT_EQ(by_id.size(), 23u);
  Tokens all = encode(words("vocabulary"), by_id);  // every word has an id, and no two the same
  std::sort(all.begin(), all.end());
  for (int id = 1; id <= 23; ++id) EXPECT_EQ(at(all, id), id);
  EXPECT_EQ(encode(words("tokens"), by_id), tables().at("token_ids").get<Tokens>());
  auto decoder = words("decoder_tokens");
  EXPECT_EQ(encode(std::vector<std::string>(decoder.begin() + 1, decoder.end() - 1), by_id),
            tables().at("decoder_token_ids_without_start_and_end").get<Tokens>());
  EXPECT_THROW(encode({"dragon"}, by_id), std::invalid_argument);
}

TEST(WorkedExample, Step3PositionalEncoding) {
  const Rows PE = positional_encoding(6, 6);
  EXPECT_EQ(disagreements(PE, transposed_table("positional_encoding_d_by_token"), 4), 0);
  EXPECT_EQ(disagreements(PE.row(4).transpose(), vector("positional_encoding_of_position_4"), 4), 0);
}

TEST(WorkedExample, Step4Input) {
  const Rows X =
      input(transposed_table("embedding_d_by_token"), transposed_table("positional_encoding_d_by_token"));
  EXPECT_EQ(disagreements(X, transposed_table("input_d_by_token"), 2), 0);
}

TEST(WorkedExample, Step5QueriesKeysValues) {
  const Rows X = transposed_table("input_d_by_token");
  EXPECT_EQ(disagreements(multiply(X, table("W_q")), table("Q"), 2), 0);
  EXPECT_EQ(disagreements(multiply(X, table("W_k")), table("K"), 2), 0);
  EXPECT_EQ(disagreements(multiply(X, table("W_v")), table("V"), 2), 0);
}

TEST(WorkedExample, Step5ScoresAndScaling) {
  EXPECT_EQ(disagreements(scores(table("Q"), table("K")), table("Q_K_transposed"), 2), 0);
  EXPECT_EQ(disagreements(scale(table("Q_K_transposed"), 4), table("scaled_scores"), 2), 0);
}

// The one step that is not taken from the table before it: the printed softmax is that of the unrounded Q K^T
// / 2.
TEST(WorkedExample, Step5Softmax) {
  const Rows unrounded = scale(scores(table("Q"), table("K")), 4);
  EXPECT_EQ(disagreements(row_softmax(unrounded), table("softmax"), 4), 0);
  EXPECT_EQ(disagreements(row_softmax(table("scaled_scores")), table("softmax"), 4), 15);
  EXPECT_EQ(disagreements(row_softmax(scale(table("Q_K_transposed"), 4)), table("softmax"), 4), 8);
}

TEST(WorkedExample, Step5Output) {
  EXPECT_EQ(disagreements(multiply(table("softmax"), table("V")), table("Z"), 4), 0);
  EXPECT_EQ(disagreements(multiply(table("Z"), table("W_o")), table("multi_head_output"), 2), 0);
}

TEST(WorkedExample, Step6AddAndNormalize) {
  const Rows sum = transposed_table("input_d_by_token") + table("multi_head_output");
  EXPECT_EQ(disagreements(sum, table("matrix_to_normalize"), 2), 0);
  const Rows printed = table("normalized");
  EXPECT_EQ(disagreements(normalize(table("matrix_to_normalize"), kEpsilon), printed, 4), 0);
  EXPECT_GT(disagreements(normalize(table("matrix_to_normalize"), 0), printed, 4),
            0);  // it takes the epsilon
  // With Algorithm 6's division by d, every cell is off by the factor sqrt(6 / 5).
  const Rows population = normalize(table("matrix_to_normalize"), kEpsilon) * std::sqrt(6.0 / 5.0);
  EXPECT_EQ(disagreements(population, printed, 4), 36);
}

TEST(WorkedExample, Step7FeedForward) {
  EXPECT_EQ(disagreements(multiply(table("normalized"), table("W_ffn")), table("XW"), 4), 0);
  EXPECT_EQ(disagreements(add_bias(table("XW"), vector("b_ffn")), table("XW_plus_b"), 4), 0);
  EXPECT_EQ(relu(table("XW_plus_b")), table("relu"));
}

// Single-head attention as in steps 5.1 to 5.4 is Algorithm 5 with H = 1, no biases, tokens in columns.
TEST(WorkedExample, Step5IsAlgorithm5) {
  const Rows X = transposed_table("input_d_by_token");
  const Rows Q = multiply(X, table("W_q")), K = multiply(X, table("W_k")), V = multiply(X, table("W_v"));
  const Rows Z = multiply(multiply(row_softmax(scale(scores(Q, K), 4)), V), table("W_o"));
  MHAttentionParameters<double> W;
  W.head.resize(1);
  W.head[0].W_q = table("W_q").transpose();
  W.head[0].W_k = table("W_k").transpose();
  W.head[0].W_v = table("W_v").transpose();
  W.W_o = table("W_o").transpose();
  const Matrix<double> columns = X.transpose();
  const Matrix<double> V_tilde = MHAttention(columns, W, bidirectional_mask(6, 6));
  EXPECT_LT((V_tilde.transpose() - Z).cwiseAbs().maxCoeff(), 1e-12);
}

// No numbers are printed for this step: a W whose logits are known, L [n_seq x V].
TEST(WorkedExample, Step10Prediction) {
  Rows X(3, 2), W(2, 4);
  X << 1, 0, 0, 1, 1, 1;
  W << 0, 3, 1, 2,  //
      5, 1, 0, 4;
  const Rows L = multiply(X, W);
  EXPECT_EQ(predict(L), (Tokens{2, 1, 4}));
  EXPECT_LT((row_softmax(L).rowwise().sum().array() - 1).abs().maxCoeff(), 1e-15);
  EXPECT_EQ(predict(row_softmax(L)), predict(L));
}

// X with rows of zeros below, as the slides pad.
Rows padded(const Rows& X, Index n_sequence) {
  Rows Y = Rows::Zero(n_sequence, X.cols());
  Y.topRows(X.rows()) = X;
  return Y;
}

// Real queries get the weights that they have without padding, and 0 for padding keys. Padding queries get
// NaN.
void expect_padding_changes_nothing(const Rows& weights, const Rows& without_padding) {
  const Index queries = without_padding.rows(), keys = without_padding.cols();
  EXPECT_LT((weights.topLeftCorner(queries, keys) - without_padding).cwiseAbs().maxCoeff(), 1e-15);
  EXPECT_TRUE((weights.topRightCorner(queries, weights.cols() - keys).array() == 0).all());
  EXPECT_TRUE(weights.bottomRows(weights.rows() - queries).array().isNaN().all());
}

TEST(WorkedExample, PaddingMask) {
  const Rows Q = table("Q"), K = table("K");
  const Rows weights = masked_weights(padded(Q, 10), padded(K, 10), padding_mask(10, 6, 6));
  expect_padding_changes_nothing(weights, row_softmax(scale(scores(Q, K), 4)));
}

TEST(WorkedExample, Step8MaskedMask) {
  // Any seven queries and keys will do: these are the six printed ones, and the first once more.
  Rows Q = padded(table("Q"), 7), K = padded(table("K"), 7);
  Q.row(6) = Q.row(0);
  K.row(6) = K.row(0);
  const Rows weights = masked_weights(padded(Q, 10), padded(K, 10), masked_mask(10, 7));
  Rows expected = Rows::Zero(7, 7);
  for (Index query = 0; query < 7; ++query) {
    expected.row(query).head(query + 1) =
        row_softmax(scale(scores(Q.row(query), K.topRows(query + 1)), 4)).row(0);
  }
  expect_padding_changes_nothing(weights, expected);
  EXPECT_EQ(masked_mask(10, 6), table("mask_masked_as_printed"));  // six tokens: see Disagreements
}

TEST(WorkedExample, Step9CrossMask) {
  EXPECT_EQ(padding_mask(10, 7, 6), table("mask_cross_as_printed"));
  Rows Q = padded(table("Q"), 7);
  Q.row(6) = Q.row(0);
  const Rows K = table("K");
  const Rows weights = masked_weights(padded(Q, 10), padded(K, 10), padding_mask(10, 7, 6));
  expect_padding_changes_nothing(weights, row_softmax(scale(scores(Q, K), 4)));
}

// ---- What disagrees
// -------------------------------------------------------------------------------------------------

void report(const std::string& what, const std::string& where, double printed, double true_value) {
  std::cout << "  " << std::left << std::setw(46) << what << std::setw(22) << where << " printed "
            << std::right << std::setw(6) << printed << "   true " << std::setw(6) << true_value << "\n";
}

// Lists where `other` differs from the embedding of step 2, tokens in rows, and expects that the input of
// step 4 follows from the embedding of step 2 in each such cell, and from the other number in none.
int list_embedding(const std::string& what, const Rows& other, const Rows& embedding, Index first_token) {
  const Rows PE = positional_encoding(6, 6), X = transposed_table("input_d_by_token");
  int count = 0;
  for (Index i = 0; i < other.rows(); ++i) {
    const Index t = first_token + i;
    for (Index d = 0; d < 6; ++d) {
      if (other(i, d) == embedding(t, d)) continue;
      ++count;
      report(what, "'" + words("tokens")[static_cast<std::size_t>(t)] + "', d = " + std::to_string(d + 1),
             other(i, d), embedding(t, d));
      EXPECT_LE(std::abs(embedding(t, d) + PE(t, d) - X(t, d)), half_unit(2));
      EXPECT_GT(std::abs(other(i, d) + PE(t, d) - X(t, d)), half_unit(2));
    }
  }
  return count;
}

TEST(WorkedExample, Disagreements) {
  std::cout << "Disagreements in the worked example:\n";
  const Rows embedding = transposed_table("embedding_d_by_token");

  const Rows stated = vector("static_embedding_stated_for_of").transpose();
  EXPECT_EQ(list_embedding("step 2, embedding stated for 'of'", stated, embedding, 4), 5);

  const Rows repeated = transposed_table("padded_encoder_embedding_d_by_token");
  EXPECT_EQ(list_embedding("padding, embedding table repeated", repeated, embedding, 0), 20);

  // The decoder has seven tokens; the masked mask is printed for six.
  const auto decoder_tokens = static_cast<Index>(words("decoder_tokens").size());
  ASSERT_EQ(decoder_tokens, 7);
  const Rows printed = table("mask_masked_as_printed"), mask = masked_mask(10, decoder_tokens);
  int cells = 0;
  for (Index i = 0; i < 10; ++i) {
    for (Index j = 0; j < 10; ++j) {
      if (printed(i, j) == mask(i, j)) continue;
      ++cells;
      const std::string row = std::to_string(i + 1), column = std::to_string(j + 1);
      report("step 8, masked MASK", row + ", " + column, printed(i, j), mask(i, j));
    }
  }
  EXPECT_EQ(cells, 7);  // row 7, <end>
  EXPECT_TRUE((mask.row(6).head(7).array() == 0).all());

  // Step 10 sums softmax(L)[i, j] over i = 1..V, for every j = 1..n_seq, where L is [n_seq x V]: the indices
  // are swapped. The same in its arg max over i of L[i, j].
  Rows L(2, 3);
  L << 0, 1, 2,  //
      5, 1, 0;
  const Rows P = row_softmax(L);
  report("step 10, sum over i of softmax(L)[i, j]", "j = 1", 1, P.col(0).sum());
  EXPECT_GT(std::abs(P.col(0).sum() - 1), 0.01);
  EXPECT_LT(std::abs(P.row(0).sum() - 1), 1e-15);

  // The sentence selected in step 2 has a "the" that the encoder's input leaves out.
  const auto sentence = tokenize(words("sentences")[1]);
  const std::vector<std::string> first_part(sentence.begin(), sentence.begin() + 7);
  report("step 2, tokens up to 'thrones'", "'the' left out", static_cast<double>(words("tokens").size()),
         static_cast<double>(first_part.size()));
  EXPECT_EQ(first_part.back(), "thrones");
  EXPECT_EQ(first_part[3], "the");
  EXPECT_NE(first_part, words("tokens"));
}

}  // namespace
}  // namespace qkv::formal::worked_example::worked_example_test
