// The cache of compiled code: whole keys decide, damage is noticed, and a directory that others could write to is not used.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <functional>

#include "runtime/files/disk_cache.h"
#include "runtime/files/sha256.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::runtime::test {
namespace {

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}

mode_t mode_of(const std::filesystem::path& path) {
  struct stat status {};
  EXPECT_EQ(stat(path.c_str(), &status), 0);
  return status.st_mode & 07777;
}

TEST(DiskCache, Sha256OfAKnownText) {
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(DiskCache, ReturnsWhatWasStoredUnderTheSameKey) {
  TemporaryDirectory folder;
  DiskCache cache(folder / "cache");
  ASSERT_EQ(cache.unusable(), "");
  std::string damage;
  EXPECT_FALSE(cache.find("key", damage));
  ASSERT_EQ(cache.store("key", bytes_of("object")), "");
  EXPECT_EQ(DiskCache(folder / "cache").find("key", damage), bytes_of("object"));
  EXPECT_FALSE(cache.find("key2", damage));
  EXPECT_EQ(damage, "");
}

TEST(DiskCache, CreatesAPrivateDirectory) {
  TemporaryDirectory folder;
  DiskCache cache(folder / "made/cache");
  EXPECT_EQ(mode_of(folder / "made/cache"), 0700u);
}

TEST(DiskCache, LeavesADirectoryThatOthersCanWriteAsItIs) {
  TemporaryDirectory folder;
  chmod(folder.path().c_str(), 0777);
  DiskCache cache(folder.path());
  EXPECT_EQ(mode_of(folder.path()), 0777u);
  EXPECT_EQ(cache.unusable(), concat(folder.path().string(), " can be written by other users; close it with: chmod 700 '",
                                     folder.path().string(), "'"));
  chmod(folder.path().c_str(), 0755);
  EXPECT_EQ(DiskCache(folder.path()).unusable(), "") << "others may look";
  EXPECT_EQ(mode_of(folder.path()), 0755u);
}

TEST(DiskCache, FollowsNoLinkToADirectory) {
  TemporaryDirectory folder;
  std::filesystem::create_directory(folder / "target");
  ASSERT_EQ(chmod((folder / "target").c_str(), 0755), 0);
  std::filesystem::create_directory_symlink(folder / "target", folder / "link");
  EXPECT_EQ(DiskCache(folder / "link").unusable(),
            concat((folder / "link").string(), " is a symbolic link, which is not followed; remove it with: rm '",
                   (folder / "link").string(), "'"));
  EXPECT_EQ(mode_of(folder / "target"), 0755u);
  std::filesystem::create_symlink(folder / "nowhere", folder / "dangling");
  EXPECT_NE(DiskCache(folder / "dangling").unusable(), "");
  EXPECT_FALSE(std::filesystem::exists(folder / "nowhere"));
}

/// Puts something in the place of the entry of "key", which must be refused with the word `what`, stay as it is, and let later
/// uses of the cache go on.
void expect_left_alone(const std::function<void(const std::filesystem::path& entry)>& put_there, const std::string& what) {
  TemporaryDirectory folder;
  DiskCache cache(folder / "cache");
  const std::filesystem::path entry = cache.path_of("key");
  put_there(entry);
  struct stat before {
  }, after{};
  ASSERT_EQ(lstat(entry.c_str(), &before), 0);
  std::string damage;
  EXPECT_FALSE(cache.find("key", damage));
  EXPECT_EQ(damage, concat("it ", what, "; remove it with: rm '", entry.string(), "'"));
  EXPECT_EQ(cache.store("key", bytes_of("object")), "");
  ASSERT_EQ(lstat(entry.c_str(), &after), 0);
  EXPECT_EQ(before.st_ino, after.st_ino);
  EXPECT_FALSE(cache.find("key", damage = ""));
  std::filesystem::remove(entry);
  EXPECT_EQ(cache.store("key", bytes_of("object")), "");
  EXPECT_TRUE(cache.find("key", damage = ""));
}

TEST(DiskCache, AnEntryThatIsALinkIsNeitherReadNorWrittenThrough) {
  TemporaryDirectory elsewhere;
  put(elsewhere / "victim", "precious");
  expect_left_alone([&](const auto& entry) { std::filesystem::create_symlink(elsewhere / "victim", entry); }, "is a symbolic link");
  EXPECT_EQ(contents(elsewhere / "victim"), "precious");
  expect_left_alone([&](const auto& entry) { std::filesystem::create_symlink(elsewhere / "new", entry); }, "is a symbolic link");
  EXPECT_FALSE(std::filesystem::exists(elsewhere / "new"));
}

TEST(DiskCache, AnEntryOfTwoNamesIsNotRead) {
  TemporaryDirectory elsewhere;
  DiskCache other(elsewhere / "cache");
  ASSERT_EQ(other.store("key", bytes_of("object")), "");
  expect_left_alone([&](const auto& entry) { std::filesystem::create_hard_link(other.path_of("key"), entry); },
                    "has 2 names (hard links)");
}

TEST(DiskCache, AFifoOrAFolderDoesNotHoldItUp) {
  expect_left_alone([](const auto& entry) { ASSERT_EQ(mkfifo(entry.c_str(), 0600), 0); }, "is no regular file");
  expect_left_alone([](const auto& entry) { std::filesystem::create_directory(entry); }, "is no regular file");
}

TEST(DiskCache, AnEntryThatOthersCanWriteIsReplaced) {
  TemporaryDirectory folder;
  DiskCache cache(folder.path());
  ASSERT_EQ(cache.store("key", bytes_of("object")), "");
  EXPECT_EQ(mode_of(cache.path_of("key")), 0600u);
  ASSERT_EQ(chmod(cache.path_of("key").c_str(), 0666), 0);
  std::string damage;
  EXPECT_FALSE(cache.find("key", damage));
  EXPECT_NE(damage.find("can be written by other users"), std::string::npos) << damage;
  ASSERT_EQ(cache.store("key", bytes_of("object")), "");
  EXPECT_TRUE(cache.find("key", damage = ""));
}

TEST(DiskCache, SaysWhyItIsUnusable) {
  TemporaryDirectory folder;
  put(folder / "file", "");
  EXPECT_EQ(DiskCache(folder / "file").unusable(),
            concat((folder / "file").string(), " is not a directory; remove it with: rm '", (folder / "file").string(), "'"));
  EXPECT_EQ(DiskCache("").unusable(), "no cache directory is set");
  if (geteuid() == 0) {
    ASSERT_EQ(chown(folder.path().c_str(), 65534, 65534), 0);
    EXPECT_EQ(
        DiskCache(folder.path()).unusable(),
        concat(folder.path().string(), " belongs to user 65534, not to this one; set XDG_CACHE_HOME to a folder of your own"));
    ASSERT_EQ(chown(folder.path().c_str(), 0, 0), 0);
  }
}

TEST(DiskCache, LeavesADirectoryThatUsersShareAsItIs) {
  TemporaryDirectory folder;
  std::filesystem::create_directory(folder / "shared");
  ASSERT_EQ(chmod((folder / "shared").c_str(), 01777), 0);
  EXPECT_EQ(DiskCache(folder / "shared").unusable(),
            concat((folder / "shared").string(), " is a directory that users share; set XDG_CACHE_HOME to a folder of your own"));
  EXPECT_EQ(mode_of(folder / "shared"), 01777u);
}

TEST(DiskCache, TrustsNoEntryOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root can give a file away";
  TemporaryDirectory folder;
  DiskCache cache(folder / "cache");
  ASSERT_EQ(cache.store("key", bytes_of("object")), "");
  ASSERT_EQ(chown(cache.path_of("key").c_str(), 65534, 65534), 0);
  std::string damage;
  EXPECT_FALSE(cache.find("key", damage));
  EXPECT_NE(damage.find("it belongs to user 65534, not to this one"), std::string::npos) << damage;
  ASSERT_EQ(cache.store("key", bytes_of("object")), "") << "it is replaced";
  EXPECT_TRUE(cache.find("key", damage = ""));
}

TEST(DiskCache, WhatAKilledWriterLeftIsTrimmed) {
  TemporaryDirectory folder;
  DiskCache cache(folder.path());
  put(folder / ".gcomp-1-0.tmp", "half of an entry");
  EXPECT_EQ(cache.entries().size(), 1u);
  EXPECT_EQ(cache.trim(-1).size(), 1u);
}

TEST(DiskCache, NoticesEveryDamage) {
  TemporaryDirectory folder;
  DiskCache cache(folder.path());
  ASSERT_EQ(cache.store("the key", bytes_of("the object")), "");
  const std::string good = contents(cache.path_of("the key"));
  for (std::size_t i = 0; i <= good.size(); ++i) {
    std::string bad = good.substr(0, i);
    if (i < good.size()) {
      put(cache.path_of("the key"), bad);
      std::string damage;
      EXPECT_FALSE(cache.find("the key", damage)) << "cut at " << i;
      EXPECT_NE(damage, "") << "cut at " << i;
      bad = good;
      bad[i] = static_cast<char>(bad[i] ^ 1);
    } else {
      bad += "x";
    }
    put(cache.path_of("the key"), bad);
    std::string damage;
    const auto found = cache.find("the key", damage);
    // The newline after the hash is the one byte that carries nothing.
    if (found) EXPECT_EQ(found, bytes_of("the object"));
    else EXPECT_NE(damage, "") << "byte " << i;
  }
}

TEST(DiskCache, AnEntryOfAnotherKeyIsRefused) {
  TemporaryDirectory folder;
  DiskCache cache(folder.path());
  ASSERT_EQ(cache.store("a", bytes_of("object of a")), "");
  std::filesystem::rename(cache.path_of("a"), cache.path_of("b"));
  std::string damage;
  EXPECT_FALSE(cache.find("b", damage));
  EXPECT_EQ(damage, "it was made for another key");
}

TEST(DiskCache, ListsItsEntriesUsedLastFirst) {
  TemporaryDirectory folder;
  DiskCache cache(folder / "cache");
  for (const char* key : {"first\nkey", "second\nkey", "third\nkey"}) ASSERT_EQ(cache.store(key, bytes_of("object")), "");
  put(folder / "cache/notes", "not an entry");
  const auto now = std::filesystem::file_time_type::clock::now();
  std::filesystem::last_write_time(cache.path_of("first\nkey"), now - std::chrono::hours(3));
  std::filesystem::last_write_time(cache.path_of("second\nkey"), now - std::chrono::hours(2));
  std::filesystem::last_write_time(cache.path_of("third\nkey"), now - std::chrono::hours(1));
  std::string damage;
  ASSERT_TRUE(cache.find("first\nkey", damage));  // now it is the one used last
  std::vector<std::string> starts;
  for (const CacheEntry& entry : cache.entries()) starts.push_back(entry.key_start.substr(0, entry.key_start.find('\n')));
  EXPECT_EQ(starts, (std::vector<std::string>{"first", "third", "second"}));
  EXPECT_EQ(cache.entries()[0].bytes, static_cast<std::int64_t>(std::filesystem::file_size(cache.path_of("first\nkey"))));
}

TEST(DiskCache, TrimsWhatWasUsedLongestAgo) {
  TemporaryDirectory folder;
  DiskCache cache(folder / "cache");
  const auto now = std::filesystem::file_time_type::clock::now();
  for (int i = 0; i < 4; ++i) {
    const std::string key = "key " + std::to_string(i);
    ASSERT_EQ(cache.store(key, bytes_of("object")), "");
    std::filesystem::last_write_time(cache.path_of(key), now - std::chrono::hours(i));
  }
  put(folder / "cache/notes", "not an entry");
  const std::int64_t one = cache.entries()[0].bytes;
  EXPECT_TRUE(cache.trim(4 * one).empty());
  EXPECT_EQ(cache.trim(2 * one + 1).size(), 2u);
  std::string damage;
  EXPECT_TRUE(cache.find("key 0", damage));
  EXPECT_TRUE(cache.find("key 1", damage));
  EXPECT_FALSE(cache.find("key 2", damage));
  EXPECT_EQ(cache.trim(-1).size(), 2u);
  EXPECT_TRUE(cache.entries().empty());
  EXPECT_TRUE(std::filesystem::exists(folder / "cache/notes"));
}

}  // namespace
}  // namespace gcomp::runtime::test
