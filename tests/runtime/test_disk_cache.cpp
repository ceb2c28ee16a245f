// The cache of compiled code: whole keys decide, damage is noticed, and a directory that others could write to is not used.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "runtime/disk_cache.h"
#include "tests/runtime/temporary_directory.h"

namespace gcomp::runtime::test {
namespace {

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
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
  struct stat status {};
  ASSERT_EQ(stat((folder / "made/cache").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
}

TEST(DiskCache, ClosesADirectoryThatIsOpenToOthers) {
  TemporaryDirectory folder;
  chmod(folder.path().c_str(), 0777);
  DiskCache cache(folder.path());
  struct stat status {};
  ASSERT_EQ(stat(folder.path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0700u);
  EXPECT_EQ(cache.unusable(), "");
}

TEST(DiskCache, SaysWhyItIsUnusable) {
  TemporaryDirectory folder;
  put(folder / "file", "");
  EXPECT_EQ(DiskCache(folder / "file").unusable(), concat((folder / "file").string(), " is not a directory"));
  EXPECT_EQ(DiskCache("").unusable(), "no cache directory is set");
  if (geteuid() == 0) {
    ASSERT_EQ(chown(folder.path().c_str(), 65534, 65534), 0);
    EXPECT_EQ(DiskCache(folder.path()).unusable(), concat(folder.path().string(), " belongs to user 65534, not to this one"));
    ASSERT_EQ(chown(folder.path().c_str(), 0, 0), 0);
  }
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

}  // namespace
}  // namespace gcomp::runtime::test
