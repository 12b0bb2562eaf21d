// SPDX-License-Identifier: Apache-2.0

#include "kernels/cuda/matmul_cache.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace quire::cuda {
namespace {

constexpr char kMachine[] = "NVIDIA H200, sm_90, cuBLASLt 130000, driver 13000";
const MatmulShape kShape = {16, 4096, 1024, DataType::kBFloat16, DataType::kFloat32, false};
const MatmulAlgorithm kAlgorithm = {1, 2, 3, 4, 5, 6, 7, ~uint64_t{0}};

// Provides the path of a file in the test's own folder.
class MatmulCacheTest : public testing::Test {
 protected:
  MatmulCacheTest() {
    folder_ = testing::TempDir() + "matmul_cache_" + testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    path_ = folder_ + "/cache";
  }
  ~MatmulCacheTest() override { std::filesystem::remove_all(folder_); }

  std::string Read() const {
    std::ostringstream text;
    text << std::ifstream(path_).rdbuf();
    return text.str();
  }
  void WriteFile(const std::string& text) const { std::ofstream(path_) << text; }

  // Returns the message of a new process that reads the file.
  std::string Complaint(const char* machine = kMachine) const {
    testing::internal::CaptureStderr();
    const MatmulCache cache(path_, machine);
    EXPECT_EQ(cache.Find(kShape) == nullptr, true);
    return testing::internal::GetCapturedStderr();
  }

  std::string folder_, path_;
};

TEST_F(MatmulCacheTest, ABucketEndsAtAPowerOfTwo) {
  const int buckets[][2] = {{1, 1}, {2, 2}, {3, 4}, {4, 4}, {5, 8}, {16, 16}, {17, 32}, {1000, 1024}, {1025, 2048}};
  for (const auto& [num_rows, bucket] : buckets) EXPECT_EQ(RowBucket(num_rows), bucket) << num_rows;
}

TEST_F(MatmulCacheTest, WhatWasInsertedIsThereAfterARestart) {
  MatmulShape other = kShape;
  other.adds_to_y = true;
  other.element = DataType::kFloat16;
  {
    MatmulCache cache(path_, kMachine);
    EXPECT_EQ(cache.Find(kShape), nullptr);
    cache.Insert(kShape, kAlgorithm);
    cache.Insert(other, {});
  }
  const MatmulCache cache(path_, kMachine);
  ASSERT_NE(cache.Find(kShape), nullptr);
  EXPECT_EQ(*cache.Find(kShape), kAlgorithm);
  ASSERT_NE(cache.Find(other), nullptr);
  EXPECT_EQ(*cache.Find(other), MatmulAlgorithm{});
  other.depth = 8;
  EXPECT_EQ(cache.Find(other), nullptr);
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1) << "no temporary file is left";
}

// Products of each kind of numbers, and of FP8 with each type of results, have algorithms of their own.
TEST_F(MatmulCacheTest, ProductsOfBytesHaveAlgorithmsOfTheirOwn) {
  MatmulShape floats = kShape;
  floats.element = floats.y_type = DataType::kFloat32;
  MatmulShape int8 = floats, fp8 = floats;
  int8.numbers = MatmulNumbers::kInt8;
  fp8.numbers = MatmulNumbers::kFp8;
  MatmulShape to_bfloat16 = fp8;
  to_bfloat16.y_type = DataType::kBFloat16;
  MatmulShape blocks_to_bfloat16 = to_bfloat16;
  blocks_to_bfloat16.numbers = MatmulNumbers::kFp8Blocks;
  const std::vector<MatmulShape> shapes = {int8, fp8, to_bfloat16, blocks_to_bfloat16, floats};
  {
    MatmulCache cache(path_, kMachine);
    for (size_t i = 0; i < shapes.size(); ++i) {
      EXPECT_EQ(cache.Find(shapes[i]), nullptr) << i;
      cache.Insert(shapes[i], {i});
    }
  }
  for (const char* const line :
       {"\n16 4096 1024 int8 int32 0 ", "\n16 4096 1024 fp8 bfloat16 0 ", "\n16 4096 1024 fp8-blocks bfloat16 0 "}) {
    EXPECT_NE(Read().find(line), std::string::npos) << Read();
  }
  const MatmulCache cache(path_, kMachine);
  for (size_t i = 0; i < shapes.size(); ++i) {
    ASSERT_NE(cache.Find(shapes[i]), nullptr) << i;
    EXPECT_EQ(*cache.Find(shapes[i]), MatmulAlgorithm{i});
  }
}

TEST_F(MatmulCacheTest, ProcessesThatShareAFileKeepEachOthersAlgorithms) {
  MatmulShape other = kShape;
  other.depth = 8;
  MatmulCache first(path_, kMachine), second(path_, kMachine);
  first.Insert(kShape, kAlgorithm);
  second.Insert(other, {});
  EXPECT_NE(second.Find(kShape), nullptr) << "what the first one has found is used at once";
  const MatmulCache later(path_, kMachine);
  EXPECT_NE(later.Find(kShape), nullptr);
  EXPECT_NE(later.Find(other), nullptr);
}

TEST_F(MatmulCacheTest, AProcessWithTheSameIdInAnotherContainerIsNotInTheWay) {
  std::filesystem::create_directory(path_ + "." + std::to_string(getpid()));
  testing::internal::CaptureStderr();
  MatmulCache(path_, kMachine).Insert(kShape, kAlgorithm);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  EXPECT_NE(MatmulCache(path_, kMachine).Find(kShape), nullptr);
}

// Several processes insert at the same time, and all of their algorithms are there in the end.
TEST_F(MatmulCacheTest, NothingIsLostWhenManyInsertAtTheSameTime) {
  constexpr int kThreads = 4, kShapes = 8;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&, i] {
      MatmulCache cache(path_, kMachine);
      MatmulShape shape = kShape;
      for (int k = 0; k < kShapes; ++k) {
        shape.depth = 8 * (1 + i * kShapes + k);
        cache.Insert(shape, kAlgorithm);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const MatmulCache cache(path_, kMachine);
  MatmulShape shape = kShape;
  for (int i = 0; i < kThreads * kShapes; ++i) {
    shape.depth = 8 * (1 + i);
    EXPECT_NE(cache.Find(shape), nullptr) << i;
  }
}

TEST_F(MatmulCacheTest, WithoutAPathThereIsNoFile) {
  MatmulCache cache("", kMachine);
  cache.Insert(kShape, kAlgorithm);
  EXPECT_NE(cache.Find(kShape), nullptr);
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
}

TEST_F(MatmulCacheTest, AMissingFileIsNoMatter) {
  EXPECT_EQ(Complaint(), "");
}

TEST_F(MatmulCacheTest, AFileOfAnotherMachineIsIgnoredAndReplaced) {
  MatmulCache(path_, kMachine).Insert(kShape, kAlgorithm);
  const char other[] = "NVIDIA H200, sm_90, cuBLASLt 130100, driver 13000";
  EXPECT_NE(Complaint(other).find("it was made on"), std::string::npos);
  testing::internal::CaptureStderr();
  MatmulCache(path_, other).Insert(kShape, kAlgorithm);
  testing::internal::GetCapturedStderr();
  EXPECT_NE(MatmulCache(path_, other).Find(kShape), nullptr);
}

TEST_F(MatmulCacheTest, OfADamagedFileNothingIsTaken) {
  MatmulCache(path_, kMachine).Insert(kShape, kAlgorithm);
  const std::string whole = Read();
  for (size_t size = 0; size < whole.size(); ++size) {
    WriteFile(whole.substr(0, size));
    const std::string complaint = Complaint();
    EXPECT_EQ(complaint.find("GPU: ignoring " + path_), 0) << "cut at " << size;
    EXPECT_EQ(std::count(complaint.begin(), complaint.end(), '\n'), 1) << complaint;
  }
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string text = whole;
    text[at] ^= 1;
    WriteFile(text);
    EXPECT_NE(Complaint(), "") << "byte " << at;
  }
  WriteFile(whole + "more\n");
  EXPECT_NE(Complaint(), "");
  WriteFile(std::string(1 << 20, '\0'));
  EXPECT_NE(Complaint(), "");
}

TEST_F(MatmulCacheTest, AFileThatCannotBeWrittenIsSaidOnce) {
  MatmulCache cache(folder_ + "/missing/cache", kMachine);
  testing::internal::CaptureStderr();
  cache.Insert(kShape, kAlgorithm);
  cache.Insert(kShape, kAlgorithm);
  const std::string complaint = testing::internal::GetCapturedStderr();
  EXPECT_EQ(complaint, "GPU: cannot write " + folder_ + "/missing/cache: No such file or directory\n");
  EXPECT_NE(cache.Find(kShape), nullptr);
}

}  // namespace
}  // namespace quire::cuda
