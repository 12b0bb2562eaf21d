// SPDX-License-Identifier: Apache-2.0

#include "worker/model/safetensors.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/worker/model/model_files.h"
#include "worker/model/checkpoint.h"
#include "worker/model/layer_check.h"

namespace quire {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A file with the tensors "a", F32 [2, 3] of 24 bytes, and "b", BF16 [4] of 8 bytes.
constexpr const char* kGoodHeader = R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                                    R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}})";
constexpr size_t kGoodBytes = 32;

std::string ErrorOf(const std::string& contents) {
  const auto tensors = ParseSafetensors(contents, "model.safetensors");
  EXPECT_FALSE(tensors.ok());
  return std::string(tensors.status().message());
}

TEST(SafetensorsTest, FindsTensorsWithTheirShapesAndBytes) {
  const std::string file = SafetensorsFileOf(kGoodHeader, kGoodBytes);
  const auto tensors = ParseSafetensors(file, "model.safetensors");
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 2u);
  EXPECT_EQ((*tensors)[0].name, "a");
  EXPECT_EQ(Describe((*tensors)[0]), "F32 [2, 3]");
  EXPECT_EQ((*tensors)[0].bytes.data(), file.data() + file.size() - 32);
  EXPECT_EQ((*tensors)[0].bytes.size(), 24u);
  EXPECT_EQ((*tensors)[1].name, "b");
  EXPECT_THAT((*tensors)[1].shape, ElementsAre(4));
  EXPECT_EQ(WeightType((*tensors)[1]), DataType::kBFloat16);
}

TEST(SafetensorsTest, MetadataScalarsEmptyTensorsAndPaddingAreFine) {
  const std::string header = R"({"__metadata__":{"format":"pt"},"s":{"dtype":"F64","shape":[],"data_offsets":[0,8]},)"
                             R"("none":{"dtype":"F16","shape":[0,7],"data_offsets":[8,8]}}    )";
  const auto tensors = ParseSafetensors(SafetensorsFileOf(header, 8), "model.safetensors");
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ(tensors->size(), 2u);
  EXPECT_FALSE(WeightType((*tensors)[0]).has_value());
}

TEST(SafetensorsTest, AFileWithoutTensorsIsFine) {
  EXPECT_TRUE(ParseSafetensors(SafetensorsFileOf("{}", 0), "model.safetensors").ok());
}

// Makes a file of `num_bytes` bytes of data with one tensor "a" that has this dtype, shape and offsets.
std::string OneTensor(const std::string& dtype, const std::string& shape, const std::string& offsets,
                      size_t num_bytes) {
  return SafetensorsFileOf("{\"a\":{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}}",
                           num_bytes);
}

TEST(SafetensorsTest, EveryCorruptFileIsOneClearLine) {
  const std::string good = SafetensorsFileOf(kGoodHeader, kGoodBytes);
  const std::string huge_header = std::string("\xff\xff\xff\xff\xff\xff\xff\x7f", 8) + "{}";
  const std::string two = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                          R"("b":{"dtype":"U8","shape":[4],"data_offsets":)";
  const struct {
    std::string contents;
    const char* message;
  } cases[] = {
      {"", "model.safetensors: the file has 0 bytes, a safetensors file begins with 8"},
      {"1234567", "has 7 bytes"},
      {huge_header, "the header is said to have 9223372036854775807 bytes, at most 2 are possible"},
      {good.substr(0, 60), "the header is said to have"},
      {good.substr(0, good.size() - 1), "tensor \"b\": data_offsets are 24 .. 32, the file has 31 bytes of data"},
      {good + "x", "model.safetensors: 1 byte at the end belongs to no tensor"},
      {SafetensorsFileOf("", 0), "is not JSON in UTF-8: it ends too early"},
      {SafetensorsFileOf("{\"a\":", 0), "is not JSON in UTF-8: it ends too early"},
      {SafetensorsFileOf("\xff\xfe", 0), "is not JSON in UTF-8: byte 0 of 2 is wrong"},
      {SafetensorsFileOf("[]", 0), "the header must be an object"},
      {SafetensorsFileOf(std::string(200000, '['), 0), "is nested deeper than 32 levels"},
      {SafetensorsFileOf("{\"a\":1}", 0), "tensor \"a\": must be an object"},
      {SafetensorsFileOf(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{}})", 1),
       "has the key \"a\" twice"},
      {SafetensorsFileOf(two + "[2,6]}}", 6), "tensor \"b\": overlaps the tensor before by 2 bytes"},
      {SafetensorsFileOf(two + "[0,4]}}", 4), "overlaps the tensor before by 4 bytes"},
      {SafetensorsFileOf(two + "[6,10]}}", 10), "tensor \"b\": leaves a hole of 2 bytes before it"},
      {OneTensor("\"U8\"", "[4]", "[1,5]", 5), "tensor \"a\": leaves a hole of 1 byte before it"},
      {OneTensor("\"U8\"", "[4]", "[4,0]", 4), "data_offsets are 4 .. 0, the file has 4 bytes of data"},
      {OneTensor("\"U8\"", "[4]", "[0,4,8]", 4), "data_offsets must be two integers from 0 up"},
      {OneTensor("\"U8\"", "[4]", "[-4,0]", 4), "data_offsets must be two integers"},
      {OneTensor("\"U8\"", "[4]", "[0,4.0]", 4), "data_offsets must be two integers"},
      {OneTensor("\"U8\"", "[4]", "[0,18446744073709551615]", 4), "data_offsets must be two integers"},
      {OneTensor("\"F32\"", "[4]", "[0,4]", 4), "data_offsets span 4 bytes, F32 [4] needs 16"},
      {OneTensor("\"Q4\"", "[4]", "[0,4]", 4), "dtype is \"Q4\", must be one of the safetensors types"},
      {OneTensor("7", "[4]", "[0,4]", 4), "dtype is 7, must be"},
      {OneTensor("\"U8\"", "[-4]", "[0,4]", 4), "shape has -4, must be integers from 0 up"},
      {OneTensor("\"U8\"", "[2.0,2]", "[0,4]", 4), "shape has 2.0, must be"},
      {OneTensor("\"U8\"", "4", "[0,4]", 4), "shape must be an array of at most 8 integers"},
      {OneTensor("\"U8\"", "[1,1,1,1,1,1,1,1,4]", "[0,4]", 4), "shape must be an array of at most 8 integers"},
      {OneTensor("\"F32\"", "[4611686018427387904,4]", "[0,0]", 0), "is larger than 2^64 bytes"},
      {OneTensor("\"F32\"", "[9223372036854775807,9223372036854775807]", "[0,4]", 4), "is larger than 2^64 bytes"},
      {OneTensor("\"F32\"", "[99999999999999999999]", "[0,4]", 4), "shape has"},
      {SafetensorsFileOf("{\"a\\nb\":1}", 0), "tensor \"a\\nb\": must be an object"},
  };
  for (const auto& [contents, message] : cases) {
    const std::string error = ErrorOf(contents);
    EXPECT_THAT(error, HasSubstr(message));
    EXPECT_THAT(error, HasSubstr("model.safetensors: "));
    EXPECT_THAT(error, Not(HasSubstr("\n")));
    EXPECT_LT(error.size(), 250u);
  }
}

TEST(SafetensorsTest, AnyFlippedByteIsReadOrRefusedButNeverCrashes) {
  const std::string good = SafetensorsFileOf(kGoodHeader, kGoodBytes);
  int num_read = 0;
  for (size_t i = 0; i < good.size() - kGoodBytes; ++i) {
    for (int flip = 1; flip < 256; flip += 3) {
      std::string bad = good;
      bad[i] ^= static_cast<char>(flip);
      const auto tensors = ParseSafetensors(bad, "model.safetensors");
      if (!tensors.ok()) continue;
      ++num_read;
      size_t covered = 0;
      for (const Tensor& tensor : *tensors) covered += tensor.bytes.size();
      EXPECT_EQ(covered, kGoodBytes);
    }
  }
  EXPECT_GT(num_read, 0) << "a changed name is still a good file";
}

TEST(SafetensorsTest, AnyPrefixIsRefused) {
  const std::string good = SafetensorsFileOf(kGoodHeader, kGoodBytes);
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(ParseSafetensors(good.substr(0, length), "model.safetensors").ok()) << length;
  }
}

// A directory with two shards. The tensor "a" is in one.safetensors and "b" is in two.safetensors.
class ShardsTest : public testing::Test {
 protected:
  ShardsTest() {
    directory_.Write("one.safetensors", OneTensor("\"U8\"", "[4]", "[0,4]", 4));
    std::string second = OneTensor("\"U8\"", "[3]", "[0,3]", 3);
    second.replace(second.find("\"a\""), 3, "\"b\"");
    directory_.Write("two.safetensors", second);
  }

  absl::StatusOr<Checkpoint> OpenWith(const std::string& weight_map) {
    directory_.Write("model.safetensors.index.json", "{\"metadata\":{},\"weight_map\":" + weight_map + "}");
    return Checkpoint::Open(directory_.path());
  }

  std::string ErrorWith(const std::string& weight_map) {
    const auto checkpoint = OpenWith(weight_map);
    EXPECT_FALSE(checkpoint.ok());
    return std::string(checkpoint.status().message());
  }

  TestDirectory directory_;
};

TEST_F(ShardsTest, TensorsOfAllShardsAreFound) {
  const auto checkpoint = OpenWith(R"({"a":"one.safetensors","b":"two.safetensors"})");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_THAT(checkpoint->Names(), ElementsAre("a", "b"));
  EXPECT_EQ(checkpoint->Find("b")->bytes.size(), 3u);
  EXPECT_EQ(checkpoint->Find("c"), nullptr);
}

TEST_F(ShardsTest, ASingleFileComesFirst) {
  directory_.Write("model.safetensors", SafetensorsFileOf(kGoodHeader, kGoodBytes));
  const auto checkpoint = OpenWith("{}");
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_EQ(checkpoint->Find("a")->bytes.size(), 24u);
}

TEST_F(ShardsTest, ATensorInTheWrongShardIsRefused) {
  EXPECT_EQ(
      ErrorWith(R"({"a":"two.safetensors","b":"two.safetensors"})"),
      directory_.path() + "/model.safetensors.index.json: weight_map puts \"a\" into two.safetensors, which lacks it");
}

TEST_F(ShardsTest, ATensorInTwoShardsIsRefused) {
  directory_.Write("two.safetensors", OneTensor("\"U8\"", "[4]", "[0,4]", 4));
  EXPECT_EQ(
      ErrorWith(R"({"a":"one.safetensors","b":"two.safetensors"})"),
      directory_.path() + "/two.safetensors: tensor \"a\" is there twice: in another shard, or with another prefix");
}

TEST_F(ShardsTest, TensorsOfAWrapperHaveTheNamesOfItsTextModel) {
  const auto tensors = [](const std::vector<std::string>& names) {
    std::string header;
    for (const std::string& name : names) {
      absl::StrAppend(&header, header.empty() ? "{" : ",", "\"", name,
                      R"(":{"dtype":"U8","shape":[0],"data_offsets":[0,0]})");
    }
    return SafetensorsFileOf(header + "}", 0);
  };
  directory_.Write("model.safetensors",
                   tensors({"language_model.model.norm.weight", "language_model.lm_head.weight",
                            "model.language_model.layers.0.mlp.up_proj.weight", "model.text_model.embed_tokens.weight",
                            "model.layers.1.mlp.up_proj.weight", "vision_tower.a", "model.vision_tower.b", "visual.c",
                            "multi_modal_projector.norm.weight", "mtp.layers.0.norm.weight"}));
  const auto checkpoint = Checkpoint::Open(directory_.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_THAT(checkpoint->Names(),
              testing::ElementsAre("lm_head.weight", "model.embed_tokens.weight", "model.layers.0.mlp.up_proj.weight",
                                   "model.layers.1.mlp.up_proj.weight", "model.norm.weight"));
  EXPECT_EQ(SkippedTensors(*checkpoint),
            "left out 5 tensors beside the text model: 1 of mtp, 1 of multi_modal_projector, 2 of vision_tower, 1 of "
            "visual");
  directory_.Write("model.safetensors", tensors({"model.norm.weight", "language_model.model.norm.weight"}));
  EXPECT_EQ(
      Checkpoint::Open(directory_.path()).status().message(),
      directory_.path() +
          "/model.safetensors: tensor \"model.norm.weight\" is there twice: in another shard, or with another prefix");
}

TEST_F(ShardsTest, AnErrorBeginsWithThePathOfTheFile) {
  directory_.Write("two.safetensors", "short");
  EXPECT_THAT(ErrorWith(R"({"a":"one.safetensors","b":"two.safetensors"})"),
              testing::StartsWith(directory_.path() + "/two.safetensors: the file has 5 bytes, "));
}

TEST_F(ShardsTest, AMissingShardIsNamed) {
  EXPECT_THAT(ErrorWith(R"({"a":"three.safetensors"})"), HasSubstr("three.safetensors"));
}

TEST_F(ShardsTest, ShardsOutsideTheDirectoryAreRefused) {
  for (const char* name : {"../one.safetensors", "/etc/passwd", "sub/one.safetensors", ".safetensors", "..", "one.bin",
                           "a\\\\b.safetensors", "one.safetensors\\u0000.safetensors"}) {
    EXPECT_THAT(ErrorWith(std::string("{\"a\":\"") + name + "\"}"),
                HasSubstr("must be the name of a .safetensors file in the same directory"))
        << name;
  }
  EXPECT_THAT(ErrorWith("{\"a\":1}"), HasSubstr("weight_map.\"a\" is 1, must be"));
}

TEST_F(ShardsTest, AnOddIndexIsRefused) {
  EXPECT_EQ(ErrorWith("[]"), directory_.path() + "/model.safetensors.index.json: weight_map must be an object");
  directory_.Write("model.safetensors.index.json", "[1]");
  EXPECT_EQ(Checkpoint::Open(directory_.path()).status().message(),
            directory_.path() + "/model.safetensors.index.json: weight_map must be an object");
}

TEST(CheckpointTest, ADirectoryWithoutWeightsSaysWhatIsMissing) {
  const TestDirectory directory;
  const absl::Status status = Checkpoint::Open(directory.path()).status();
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("has neither model.safetensors nor model.safetensors.index.json"));
}

TEST(CheckpointTest, ADirectoryInPlaceOfAFileIsRefused) {
  const TestDirectory directory;
  const std::string path = directory.path();
  const auto file = MappedFile::Open(path);
  EXPECT_THAT(std::string(file.status().message()), HasSubstr("is not a regular file"));
}

}  // namespace
}  // namespace quire
