// Checkpoints of several ranks, each of which writes what it alone holds.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "gcomp/driver/checkpoint_files.h"
#include "gcomp/driver/checkpoint_parts.h"
#include "ir/base/error.h"
#include "runtime/files/atomic_file.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::driver {
namespace {

namespace fs = std::filesystem;
using gcomp::runtime::test::TemporaryDirectory;

constexpr int kRanks = 3;
constexpr std::int64_t kShare = 64;

/// Of 150 elements the ranks hold 64, 64 and 22; of five the first holds all.
const passes::ShardedState kLong{"w.exp_avg", "w.exp_avg.own", {DType::f32, {15, 10}}, kShare};
const passes::ShardedState kShort{"b.exp_avg", "b.exp_avg.own", {DType::f32, {5}}, kShare};

Tensor counted(const TensorType& type, std::int64_t first) {
  Tensor made(type);
  for (std::int64_t i = 0; i < made.elements(); ++i) made.set(i, static_cast<double>(first + i));
  return made;
}

/// What a rank holds: elements say where they are.
Snapshot snapshot_of(int rank) {
  Snapshot made;
  made.rank = rank;
  made.ranks = kRanks;
  made.run.step = 7;
  for (const passes::ShardedState& one : {kLong, kShort})
    made.states.push_back({one.name, StateKind::moment, counted({DType::f32, {kShare}}, rank * kShare), one});
  if (rank == 0) made.states.push_back({"w", StateKind::parameter, counted({DType::f32, {15, 10}}, 1000)});
  return made;
}

struct Parts : testing::Test {
  TemporaryDirectory folder;
  fs::path path = folder.path() / "step-00000007";

  void write_first(double patience = 60) {
    write_checkpoint(path, snapshot_of(0), [&](runtime::AtomicFolder& made, Manifest& manifest) {
      collect_parts(path, kRanks, patience, made, manifest);
    });
  }
  std::string failure_of_first(double patience = 60) {
    try {
      write_first(patience);
    } catch (const UserError& error) { return error.what(); }
    return "";
  }
  std::vector<std::string> names() const {
    std::vector<std::string> found;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder.path()))
      found.push_back(entry.path().filename().string());
    std::ranges::sort(found);
    return found;
  }
};

TEST_F(Parts, BecomeOneCheckpoint) {
  for (const int rank : {2, 1}) write_part(path, snapshot_of(rank));
  write_first();
  EXPECT_EQ(names(), std::vector<std::string>{"step-00000007"}) << "parts are gone";
  const Manifest manifest = read_manifest(path);
  verify_files(path, manifest);
  const std::vector<TensorPiece> wanted{
      {"moments-0-of-3.safetensors", 0, 64}, {"moments-1-of-3.safetensors", 64, 64}, {"moments-2-of-3.safetensors", 128, 22}};
  EXPECT_EQ(manifest.tensors.at("w.exp_avg").pieces, wanted);
  EXPECT_EQ(manifest.tensors.at("b.exp_avg").pieces, (std::vector<TensorPiece>{{"moments-0-of-3.safetensors", 0, 5}}));
  const std::map<std::string, Tensor> tensors = read_tensors(path, manifest);
  EXPECT_EQ(tensors.at("w.exp_avg"), counted({DType::f32, {15, 10}}, 0));
  EXPECT_EQ(tensors.at("b.exp_avg"), counted({DType::f32, {5}}, 0));
  EXPECT_EQ(tensors.at("w"), counted({DType::f32, {15, 10}}, 1000));
}

TEST_F(Parts, OneThatFailsIsTheCheckpointsFailure) {
  write_part(path, snapshot_of(1));
  runtime::write_file(folder.path() / ".part-step-00000007-2-of-3.failed", std::as_bytes(std::span("the disk is full", 16)));
  EXPECT_EQ(failure_of_first(), "rank 2: the disk is full");
  EXPECT_FALSE(fs::exists(path)) << "nothing of its name";
  for (const int rank : {1, 2}) write_part(path, snapshot_of(rank));
  EXPECT_EQ(failure_of_first(), "") << "the next one is whole";
}

TEST_F(Parts, WhatCannotBeWrittenSaysWhy) {
  const fs::path nowhere = folder.path() / "gone" / "step-00000007";
  try {
    write_part(nowhere, snapshot_of(1));
    ADD_FAILURE() << "a part in a folder that is not there";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find(".part-step-00000007-1-of-3"), std::string::npos) << error.what();
  }
}

TEST_F(Parts, OneThatDoesNotComeIsWaitedForNoLongerThanPatienceLasts) {
  write_part(path, snapshot_of(1));
  const std::string failure = failure_of_first(0.05);
  EXPECT_EQ(failure.find("rank 2 has not written '"), 0u) << failure;
  EXPECT_NE(failure.find("within 0.05 s"), std::string::npos) << failure;
}

TEST_F(Parts, OnesOfARunThatWasKilledGo) {
  for (const int rank : {1, 2}) write_part(path, snapshot_of(rank));
  fs::create_directory(folder.path() / ".part-step-00000003-1-of-3.failed");
  remove_parts(folder.path());
  EXPECT_TRUE(names().empty());
}

TEST_F(Parts, AListThatIsDamagedNamesTheRank) {
  for (const int rank : {1, 2}) write_part(path, snapshot_of(rank));
  runtime::write_file(folder.path() / ".part-step-00000007-2-of-3" / "part.json", std::as_bytes(std::span("{}", 2)));
  const std::string failure = failure_of_first();
  EXPECT_EQ(failure.find("rank 2's '"), 0u) << failure;
  EXPECT_NE(failure.find("'files' is missing"), std::string::npos) << failure;
}

}  // namespace
}  // namespace gcomp::driver
