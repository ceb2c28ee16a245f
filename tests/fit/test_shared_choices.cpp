// Ranks compute products as the first of them times them to be fastest. Here they are threads, and the device is made up.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gcomp/driver/ranks.h"
#include "ir/base/error.h"
#include "tests/runtime/thread_ranks.h"

namespace gcomp::test {
namespace {

/// Times nothing where it is of nothing.
class TimingDevice final : public runtime::Device {
 public:
  explicit TimingDevice(std::string of) { choices_.of = std::move(of); }

  runtime::Target target() const override { return {}; }
  std::string description() const override { return "made up"; }
  std::shared_ptr<runtime::StateMemory> allocate_states() override { return nullptr; }
  runtime::BesideExchanges exchanges_beside() const override { return runtime::BesideExchanges::none; }
  runtime::TimedChoices timed_choices() const override { return choices_; }
  void follow_choices(const runtime::TimedChoices& choices) override { choices_ = choices; }

  void choose(const std::string& way) { choices_.chosen["product"] = way; }

 private:
  std::unique_ptr<runtime::Executable> load_program(runtime::Program, std::shared_ptr<runtime::StateMemory>,
                                                    std::span<const std::byte>, int, runtime::Lane) override {
    return nullptr;
  }
  runtime::TimedChoices choices_;
};

TEST(SharedChoices, AreTheFirstRanks) {
  std::vector<int> timed(4);
  run_ranks(4, [&](Communicator& communicator) {
    TimingDevice device("a GPU");
    driver::share_choices(device, &communicator, [&] {
      ++timed[static_cast<std::size_t>(communicator.rank())];
      device.choose(concat("that of rank ", communicator.rank()));
    });
    EXPECT_EQ(device.timed_choices().chosen.at("product"), "that of rank 0") << "rank " << communicator.rank();
  });
  EXPECT_EQ(timed, (std::vector{1, 0, 0, 0}));
}

TEST(SharedChoices, OfAProcessAloneOrWithoutTimingAreNobodys) {
  TimingDevice alone("a GPU");
  driver::share_choices(alone, nullptr, [] { ADD_FAILURE() << "loading times them"; });
  run_ranks(2, [](Communicator& communicator) {
    TimingDevice device("");
    driver::share_choices(device, &communicator, [] { ADD_FAILURE() << "nothing is timed"; });
    EXPECT_EQ(device.timed_choices(), runtime::TimedChoices{});
  });
}

/// All ranks hear of it, and none waits for another.
TEST(SharedChoices, AreRefusedToRanksThatAreNotAlike) {
  const auto refusal = [](const std::string& second) {
    std::vector<std::string> said(2);
    run_ranks(2, [&](Communicator& communicator) {
      TimingDevice device(communicator.rank() == 0 ? "a GPU" : second);
      try {
        driver::share_choices(device, &communicator, [] { ADD_FAILURE() << "it was timed"; });
      } catch (const UserError& error) { said[static_cast<std::size_t>(communicator.rank())] = error.what(); }
    });
    EXPECT_EQ(said[0], said[1]);
    return said[0];
  };
  const std::string why = "; what ranks compute has the same bits only where these are the same";
  EXPECT_EQ(refusal("another"), "--tune: rank 1 of 2 times products on another, and rank 0 times products on a GPU" + why);
  EXPECT_EQ(refusal(""), "--tune: rank 1 of 2 times nothing, and rank 0 times products on a GPU" + why);
}

TEST(SharedChoices, AFailureOfTheTimingIsThatOfAllRanks) {
  std::vector<std::string> said(2);
  run_ranks(2, [&](Communicator& communicator) {
    TimingDevice device("a GPU");
    try {
      driver::share_choices(device, &communicator, [] { throw DeviceError("it broke"); });
    } catch (const Error& error) { said[static_cast<std::size_t>(communicator.rank())] = error.what(); }
  });
  EXPECT_EQ(said, (std::vector<std::string>(2, "rank 0 of 2 (host0): it broke")));
}

}  // namespace
}  // namespace gcomp::test
