// SPDX-License-Identifier: Apache-2.0

#include "worker/model/gguf.h"

#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/backend.h"
#include "tests/test_paths.h"
#include "tests/worker/model/gguf_writer.h"
#include "tests/worker/model/model_files.h"
#include "worker/model/gguf_fields.h"
#include "worker/model/gguf_tensors.h"
#include "worker/model/gguf_tokenizer.h"
#include "worker/model/gguf_types.h"
#include "worker/model/model.h"
#include "worker/model/tensor_values.h"

namespace quire {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string GoldenBytes(const std::string& name) {
  return ReadWholeFile(SourcePath("tests/golden/gguf/" + name));
}

std::string ErrorOf(const std::string& file) {
  const auto contents = ParseGguf(file, "x.gguf");
  EXPECT_FALSE(contents.ok());
  return std::string(contents.status().message());
}

TEST(GgufTest, MetadataAreReadWithTheirTypes) {
  GgufWriter writer;
  writer.AddUint32("number", 7);
  writer.Add("large", GgufType::kUint64, GgufWriter::Bytes(uint64_t{1} << 63));
  writer.AddFloat("float", 0.5f);
  writer.AddBool("flag", true);
  writer.AddString("text", "caf\u00e9");
  writer.AddString("broken", "caf\xe9");
  writer.AddStrings("texts", {"a", ""});
  writer.AddInts("equal", {3, 3, 3});
  writer.AddInts("different", {3, 4, 3});
  writer.AddInts("zeros", {0, 0});
  const std::string file = writer.File();
  const auto contents = ParseGguf(file, "x.gguf");
  ASSERT_TRUE(contents.ok()) << contents.status();
  const GgufFields fields(*contents);
  EXPECT_EQ(*fields.Int("number", 0, 7), 7);
  EXPECT_EQ(*fields.Int("missing", 0, 7, 5), 5);
  EXPECT_EQ(fields.Int("missing", 0, 7).status().message(), "missing is missing, must be an integer in 0 .. 7");
  EXPECT_EQ(fields.Int("number", 0, 6).status().message(), "number is 7, must be an integer in 0 .. 6");
  EXPECT_EQ(fields.Int("large", 0, 6).status().message(), "large is 9223372036854775808, must be an integer in 0 .. 6");
  EXPECT_EQ(*fields.Number("float", 0, 1), 0.5);
  EXPECT_EQ(fields.Int("float", 0, 1).status().message(), "float is 0.5, must be an integer in 0 .. 1");
  EXPECT_TRUE(*fields.Bool("flag"));
  EXPECT_EQ(fields.Bool("number").status().message(), "number is 7, must be true or false");
  EXPECT_EQ(*fields.String("text"), "caf\u00e9");
  EXPECT_THAT(std::string(fields.String("broken").status().message()), HasSubstr("broken is not valid UTF-8"));
  EXPECT_EQ(fields.Strings("texts")->size(), 2u);
  EXPECT_EQ(*fields.Int("equal", 0, 7), 3) << "a number for each layer";
  EXPECT_EQ(fields.Int("different", 0, 7).status().message(),
            "different is an array of 3 elements that begins with [3,4,3], must be an integer in 0 .. 7");
  EXPECT_TRUE(fields.IsNeutral("zeros"));
  EXPECT_FALSE(fields.IsNeutral("number"));
}

TEST(GgufTest, ShapesAreTurnedRound) {
  GgufWriter writer;
  writer.AddTensor("a", 0, {2, 3}, std::string(24, 'a'));
  writer.AddTensor("b", 1, {5}, std::string(10, 'b'));
  const std::string file = writer.File();
  const auto contents = ParseGguf(file, "x.gguf");
  ASSERT_TRUE(contents.ok()) << contents.status();
  ASSERT_EQ(contents->tensors.size(), 2u);
  EXPECT_EQ(Describe(contents->tensors[0]), "F32 [2, 3]");
  EXPECT_EQ(contents->tensors[0].bytes, std::string(24, 'a'));
  EXPECT_EQ(Describe(contents->tensors[1]), "F16 [5]");
  EXPECT_EQ(contents->tensors[1].bytes, std::string(10, 'b'));
}

TEST(GgufTest, AnotherBeginningIsNamed) {
  const std::string file = GgufWriter().File();
  EXPECT_EQ(ErrorOf("GGML" + file.substr(4)),
            "x.gguf: the file begins with \"GGML\", a GGUF file begins with \"GGUF\"");
  EXPECT_THAT(ErrorOf(""), HasSubstr("begins with \"\""));
  EXPECT_EQ(ErrorOf("GGUF" + GgufWriter::Bytes(uint32_t{1}) + file.substr(8)), "x.gguf: version is 1, must be 2 or 3");
  EXPECT_THAT(ErrorOf("GGUF" + GgufWriter::Bytes(uint32_t{0x03000000}) + file.substr(8)), HasSubstr("big-endian"));
  EXPECT_TRUE(ParseGguf("GGUF" + GgufWriter::Bytes(uint32_t{2}) + file.substr(8), "x.gguf").ok());
}

TEST(GgufTest, CountsAndLengthsBeyondTheFileAreNamed) {
  const auto header = [](uint64_t tensors, uint64_t entries) {
    return "GGUF" + GgufWriter::Bytes(uint32_t{3}) + GgufWriter::Bytes(tensors) + GgufWriter::Bytes(entries);
  };
  EXPECT_EQ(ErrorOf(header(0, 1u << 30)), "x.gguf: has 1073741824 metadata, at most 65536");
  EXPECT_EQ(ErrorOf(header(1u << 30, 0)), "x.gguf: has 1073741824 tensors, at most 65536");
  EXPECT_EQ(ErrorOf(header(0, 1)), "x.gguf: the key of metadata 0 at byte 24 needs 8 bytes, the file ends after 0");
  EXPECT_EQ(ErrorOf(header(0, 1) + GgufWriter::Bytes(uint64_t{1} << 40)),
            "x.gguf: the key of metadata 0 has 1099511627776 bytes, at most 1024");
  GgufWriter strings;
  strings.Add("a", GgufType::kArray, GgufWriter::Bytes(GgufType::kString) + GgufWriter::Bytes(uint64_t{1} << 40));
  EXPECT_THAT(ErrorOf(strings.File()), HasSubstr("metadata \"a\" has 1099511627776 strings, at most "));
  GgufWriter numbers;
  numbers.Add("a", GgufType::kArray, GgufWriter::Bytes(GgufType::kUint32) + GgufWriter::Bytes(~uint64_t{0}));
  EXPECT_THAT(ErrorOf(numbers.File()), HasSubstr("metadata \"a\" has 18446744073709551615 elements of 4 bytes"));
  GgufWriter nested;
  nested.Add("a", GgufType::kArray, GgufWriter::Bytes(GgufType::kArray) + GgufWriter::Bytes(uint64_t{1}));
  EXPECT_THAT(ErrorOf(nested.File()), HasSubstr("metadata \"a\" has the type 9"));
  GgufWriter twice;
  twice.AddUint32("a", 1);
  twice.AddUint32("a", 1);
  EXPECT_EQ(ErrorOf(twice.File()), "x.gguf: metadata \"a\" occurs twice");
}

TEST(GgufTest, ATensorOutsideOfTheFileIsNamed) {
  const auto error_with = [](uint32_t type, const std::vector<int64_t>& shape, uint64_t offset) {
    GgufWriter writer;
    writer.AddTensor("a", 0, {32}, std::string(128, 'a'));
    writer.AddTensorAt("b", type, shape, offset);
    return ErrorOf(writer.File());
  };
  EXPECT_EQ(error_with(0, {8}, 128),
            "x.gguf: tensor \"b\" has 32 bytes at offset 128, the file has 128 bytes of data; it may be incomplete");
  EXPECT_EQ(error_with(0, {8}, 64), "x.gguf: tensor \"b\" overlaps the tensor before by 64 bytes");
  EXPECT_EQ(error_with(0, {8}, 65), "x.gguf: tensor \"b\" has the offset 65, must be a multiple of 32");
  EXPECT_THAT(error_with(0, {8}, ~uint64_t{31}), HasSubstr("tensor \"b\" has 32 bytes at offset 18446744073709551584"));
  EXPECT_EQ(error_with(8, {33}, 128), "x.gguf: tensor \"b\" is Q8_0 [33], its last dimension must be a multiple of 32");
  EXPECT_THAT(error_with(0, {int64_t{1} << 40, int64_t{1} << 40}, 128), HasSubstr("larger than 2^64 bytes"));
  EXPECT_EQ(error_with(0, {-1}, 128),
            "x.gguf: tensor \"b\" has the dimension 18446744073709551615, at most 9223372036854775807");
  EXPECT_EQ(error_with(0, {1, 1, 1, 1, 1}, 128), "x.gguf: tensor \"b\" has 5 dimensions, at most 4");
  GgufWriter twice;
  twice.AddTensor("a", 0, {1}, "1234");
  twice.AddTensor("a", 0, {1}, "1234");
  EXPECT_EQ(ErrorOf(twice.File()), "x.gguf: tensor \"a\" occurs twice");
}

TEST(GgufTest, AnotherTypeIsRefusedByItsNameWithTheTypesThatAreRead) {
  const auto error_with = [](uint32_t type) {
    GgufWriter writer;
    writer.AddTensor("a", type, {256}, std::string(1024, 'a'));
    return ErrorOf(writer.File());
  };
  EXPECT_EQ(error_with(23), "x.gguf: tensor \"a\" has the type IQ4_XS, supported are " + SupportedGgufTypes());
  EXPECT_EQ(SupportedGgufTypes(), "F32, F16, BF16, Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K, IQ4_NL, MXFP4");
  EXPECT_THAT(error_with(10), HasSubstr("the type Q2_K,"));
  EXPECT_THAT(error_with(77), HasSubstr("the type 77,"));
}

TEST(GgufTest, AnAlignmentMustBeAPowerOfTwo) {
  const auto with = [](uint32_t alignment) {
    GgufWriter writer;
    writer.AddUint32("general.alignment", alignment);
    return writer.File();
  };
  EXPECT_TRUE(ParseGguf(with(64), "x.gguf").ok());
  EXPECT_EQ(ErrorOf(with(0)), "x.gguf: metadata \"general.alignment\" is 0, must be a power of two up to 1048576");
  EXPECT_THAT(ErrorOf(with(48)), HasSubstr("is 48, must be a power of two"));
  EXPECT_THAT(ErrorOf(with(1u << 31)), HasSubstr("is 2147483648, must be a power of two"));
}

// tests/golden/gguf/blocks.gguf: a matrix of each type, and what the package gguf makes of it.
TEST(GgufTest, BlocksAreDequantizedAsByTheReference) {
  const std::string file = GoldenBytes("blocks.gguf");
  const auto contents = ParseGguf(file, "blocks.gguf");
  ASSERT_TRUE(contents.ok()) << contents.status();
  int num_types = 0;
  for (const Tensor& tensor : contents->tensors) {
    if (!IsGgufQuantized(tensor)) continue;
    SCOPED_TRACE(Describe(tensor));
    const auto is_expected = [&](const Tensor& other) { return other.name == tensor.name + ".dequantized"; };
    const auto expected = std::find_if(contents->tensors.begin(), contents->tensors.end(), is_expected);
    ASSERT_NE(expected, contents->tensors.end());
    std::vector<float> reference;
    AppendAsFloat(expected->bytes, DataType::kFloat32, &reference);
    const GgufTensorType& type = *FindGgufTensorType(tensor.dtype);
    std::vector<float> values(reference.size());
    for (size_t i = 0; i * type.block_elements < values.size(); ++i) {
      type.dequantize(reinterpret_cast<const uint8_t*>(tensor.bytes.data()) + i * type.block_bytes,
                      &values[i * type.block_elements]);
    }
    EXPECT_EQ(values, reference);
    const OwnedTensor converted = DequantizeGgufTensor(tensor);
    std::vector<float> rounded;
    AppendAsFloat(converted.tensor.bytes, kDequantizedType, &rounded);
    ASSERT_EQ(rounded.size(), reference.size());
    for (size_t i = 0; i < rounded.size(); ++i) EXPECT_NEAR(rounded[i], reference[i], std::abs(reference[i]) / 256);
    ++num_types;
  }
  EXPECT_EQ(num_types, 10);
}

// Changes, cuts and lengthens files, and loads the results.
TEST(GgufTest, ThreeThousandDamagedFilesAreLoadedOrRefusedInOneLine) {
  SetLogLevel(LogLevel::kError);
  const auto backend = MakeCpuBackend(1);
  const TestDirectory directory;
  const std::string path = directory.path() + "/model.gguf";
  std::mt19937 random(7);
  const struct {
    const char* name;
    bool has_tensors;
  } files[] = {{"llama.gguf", true},         {"qwen3.gguf", true},       {"qwen3moe.gguf", true},
               {"gpt_oss_mxfp4.gguf", true}, {"llama3_bpe.gguf", false}, {"sentencepiece.gguf", false}};
  int num_refused = 0;
  for (const auto& [name, has_tensors] : files) {
    const std::string file = GoldenBytes(name);
    const auto undamaged = ParseGguf(file, name);
    ASSERT_TRUE(undamaged.ok()) << undamaged.status();
    ASSERT_EQ(!undamaged->tensors.empty(), has_tensors) << name;
    size_t header = file.size();  // What precedes the weights, because damage to them is seldom an error.
    for (const Tensor& tensor : undamaged->tensors) {
      header = std::min(header, static_cast<size_t>(tensor.bytes.data() - file.data()));
    }
    int num_refused_of_file = 0;
    for (int i = 0; i < 500; ++i) {
      std::string bad = file;
      const size_t at = random() % header;
      if (i % 10 == 0) {
        bad.resize(at);
      } else {
        for (unsigned k = 0; k <= random() % 3; ++k) bad[(at + k) % header] = static_cast<char>(random());
      }
      std::string error;
      if (has_tensors) {
        directory.Write("model.gguf", bad);
        error = std::string(LoadModel(path, backend.get()).status().message());
      } else if (const auto contents = ParseGguf(bad, "model.gguf"); contents.ok()) {
        error = std::string(GgufTokenizerFiles(*contents).status().message());
      } else {
        error = std::string(contents.status().message());
      }
      num_refused_of_file += error.empty() ? 0 : 1;
      EXPECT_THAT(error, Not(HasSubstr("\n"))) << name << " " << i;
    }
    EXPECT_GT(num_refused_of_file, has_tensors ? 200 : 50) << name;
    num_refused += num_refused_of_file;
  }
  SetLogLevel(LogLevel::kInfo);
  EXPECT_GT(num_refused, 700);
}

}  // namespace
}  // namespace quire
