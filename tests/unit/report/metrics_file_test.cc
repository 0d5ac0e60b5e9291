// Records of a run: metrics.jsonl and TensorBoard's event files, which tests/event_files.py reads.
// Covers: qkv/report/event_file.cc
#include "qkv/report/metrics_file.h"

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <sstream>

#include "qkv/base/error.h"
#include "qkv/base/file.h"
#include "qkv/base/json_value.h"
#include "tests/source_dir.h"
#include "tests/unit/scratch_dir.h"

namespace qkv::metrics_file_test {
namespace {

using testing::ScratchDir;

// The events of the files in `dir`, by an independent reader.
std::vector<Json> events_in(const std::string& dir) {
  const std::string command =
      "python3 " + testing::source_dir() + "/tests/event_files.py '" + dir + "'/* 2>&1";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), ::pclose);
  std::string out;
  std::array<char, 4096> buffer;
  for (size_t n; (n = std::fread(buffer.data(), 1, buffer.size(), pipe.get())) > 0;)
    out.append(buffer.data(), n);
  std::vector<Json> events;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    events.push_back(Json::parse(line, nullptr, false));
    EXPECT_TRUE(events.back().is_object()) << out;
    if (!events.back().is_object()) return {};
  }
  return events;
}

TEST(Crc32c, KnownAnswers) {  // RFC 3720, appendix B.4
  EXPECT_EQ(crc32c(""), 0u);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283u);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAu);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43u);
}

TEST(EventFile, IsReadBack) {
  const ScratchDir dir;
  const std::string long_text(70'000, 'x');  // its length takes three bytes
  {
    EventFile file(dir.path() + "/tensorboard");
    file.scalar(1, "train/loss", 2.5);
    file.scalar(int64_t{1} << 40, "train/loss", -1e-30);
    file.session_start(7);
    file.text(300, "samples/1", "é\n" + long_text);
  }
  const auto events = events_in(dir.path() + "/tensorboard");
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[0]["file_version"], "brain.Event:2");
  EXPECT_EQ(events[1]["tag"], "train/loss");
  EXPECT_EQ(events[1]["step"], 1);
  EXPECT_EQ(events[1]["value"], 2.5);
  EXPECT_EQ(events[2]["step"], int64_t{1} << 40);
  EXPECT_EQ(events[2]["value"].get<double>(), static_cast<double>(-1e-30f));
  EXPECT_EQ(events[3]["session_status"], 1);  // START
  EXPECT_EQ(events[3]["step"], 7);
  EXPECT_EQ(events[4]["text"], "é\n" + long_text);
  const auto now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  for (const Json& e : events) EXPECT_NEAR(e["wall_time"].get<double>(), now, 60);
}

TEST(Metrics, WriteLinesAndEvents) {
  const ScratchDir dir;
  {
    Metrics metrics(dir.path(), 0);
    metrics.write(
        {{"step", 1}, {"loss", 2.5}, {"lr", 0.125}, {"grad_norm", 3}, {"seconds", 9.5}, {"z_loss", 4}});
    metrics.write({{"step", 1}, {"valid_loss", 1.5}, {"ema_valid_loss", 1.25}});
    metrics.write({{"step", 1}, {"sample", "a\nb\xFF"}, {"prompt", "> "}});
    metrics.write({{"step", 1}, {"sample", "second"}});
    metrics.write({{"step", 2}, {"sample", "third"}});
  }
  EXPECT_EQ(read_file(dir.path() + "/metrics.jsonl"),
            "{\"step\":1,\"loss\":2.5,\"lr\":0.125,\"grad_norm\":3,\"seconds\":9.5,\"z_loss\":4}\n"
            "{\"step\":1,\"valid_loss\":1.5,\"ema_valid_loss\":1.25}\n"
            "{\"step\":1,\"sample\":\"a\\nb\xEF\xBF\xBD\",\"prompt\":\"> \"}\n"
            "{\"step\":1,\"sample\":\"second\"}\n"
            "{\"step\":2,\"sample\":\"third\"}\n");
  std::string seen;
  for (const Json& e : events_in(dir.path() + "/tensorboard"))
    if (e.contains("tag")) {
      const Json value = e.contains("value") ? e["value"] : e["text"];
      seen += fmt::format("{} {} {}\n", e["step"].get<int>(), e["tag"].get<std::string>(), value.dump());
    }
  EXPECT_EQ(
      seen,
      "1 train/loss 2.5\n1 train/learning_rate 0.125\n1 train/gradient_norm 3.0\n1 train/z_loss 4.0\n"
      "1 valid/loss 1.5\n1 valid/ema_loss 1.25\n"
      "1 samples/1 \"    > a\\n    b\xEF\xBF\xBD\"\n1 samples/2 \"    second\"\n2 samples/1 \"    third\"\n");
}

TEST(Metrics, ResumeAtTheCheckpoint) {
  const ScratchDir dir;
  Metrics(dir.path(), 0).write({{"step", 1}, {"loss", 4}});
  // A killed process leaves steps after its checkpoint, and half a line.
  const std::string kept = "{\"step\": 1, \"loss\": 4.0}\n{\"step\":2,\"valid_loss\":3}\n";
  dir.write("metrics.jsonl", kept + "{\"step\":3,\"loss\":9}\n{\"step\":2,\"lo");
  Metrics(dir.path(), 2).write({{"step", 3}, {"loss", 5}});
  EXPECT_EQ(read_file(dir.path() + "/metrics.jsonl"), kept + "{\"step\":3,\"loss\":5}\n");
  const auto events = events_in(dir.path() + "/tensorboard");  // from both files, the older first
  ASSERT_EQ(events.size(), 5u);
  EXPECT_EQ(events[1]["value"], 4);
  EXPECT_TRUE(events[2].contains("file_version"));
  EXPECT_EQ(events[3]["session_status"], 1);
  EXPECT_EQ(events[3]["step"], 3);  // this step and later ones are discarded
  EXPECT_EQ(events[4]["value"], 5);

  const Metrics anew(dir.path(), 0);  // a run in the same place
  EXPECT_EQ(read_file(dir.path() + "/metrics.jsonl"), "");
  EXPECT_EQ(events_in(dir.path() + "/tensorboard").size(), 1u);
}

}  // namespace
}  // namespace qkv::metrics_file_test
