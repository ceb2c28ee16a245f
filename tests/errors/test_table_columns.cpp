// Tables whose columns lie in another order, or lack values, than those that a model was trained on, through every command that
// reads one: results must be those of the table as the training had it.
#include "tests/errors/bad_input.h"

namespace gcomp::test {
namespace {

class TableColumns : public BadInput {
 protected:
  /// Rows whose label follows from c alone; `order` says in which order features are written, and `gap` which row lacks its b.
  std::string table(const std::string& name, const std::vector<char>& order, int gap = -1) {
    std::string text = "label";
    for (const char column : order) text += concat(",", std::string(1, column));
    for (int row = 0; row < 8; ++row) {
      text += concat("\n", row % 2);
      for (const char column : order) text += "," + value(column, row, gap);
    }
    runtime::test::put(folder_ / name, text + "\n");
    return folder_ / name;
  }
  /// b is 0, 8, 16, ..., whose mean without row 7's 56 is 24.
  static std::string value(char column, int row, int gap) {
    if (column == 'b' && row == gap) return "";
    return std::to_string(column == 'a' ? row : column == 'b' ? 8 * row : 3 * (row % 2));
  }
  CommandResult fit(const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"train", model_, "--loss", "cross_entropy", "--batch", "4", "--steps", "4"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_gcomp(arguments);
  }
  CommandResult fitted(const std::vector<std::string>& more) {
    CommandResult result = fit(more);
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    return result;
  }
  std::string outputs(const std::string& model, const std::string& data) {
    const CommandResult made = run_gcomp({"run", model, "--inputs", data, "--outputs", folder_ / "y.npz"});
    EXPECT_EQ(made.exit_code, 0) << made.errors;
    return runtime::test::contents(folder_ / "y.npz");
  }
  static std::string loss_line(const CommandResult& result) {
    EXPECT_EQ(result.exit_code, 0) << result.errors;
    const std::size_t begin = result.output.find("loss");
    return begin == std::string::npos ? "none" : result.output.substr(begin, result.output.find('\n', begin) - begin);
  }

  const std::string first_ = table("first.csv", {'a', 'b', 'c'}), turned_ = table("turned.csv", {'c', 'a', 'b'});
};

TEST_F(TableColumns, AreTakenByNameWherever) {
  const std::string artifact = folder_ / "t.gcx", last = folder_ / "run/last.onnx";
  const CommandResult trained = fitted({"--data", first_, "--eval-data", turned_, "--out", artifact, "--run-dir", folder_ / "run"});
  EXPECT_NE((trained.output + trained.errors).find("another order than"), std::string::npos) << trained.output << trained.errors;
  for (const std::string& model : {artifact, last}) {
    const auto evaluate = [&](const std::string& data) {
      std::vector<std::string> arguments{"eval", model, "--data", data};
      if (model == last) arguments.insert(arguments.end(), {"--loss", "cross_entropy"});
      return loss_line(run_gcomp(arguments));
    };
    EXPECT_EQ(evaluate(turned_), evaluate(first_)) << model;
    EXPECT_NE(evaluate(first_), "none");
    EXPECT_EQ(outputs(model, turned_), outputs(model, first_)) << model;
  }
}

TEST_F(TableColumns, ASecondTableTrainsAsTheFirst) {
  const auto trained = [&](const std::string& second) {
    const std::string out = folder_ / "both.onnx";
    fitted({"--data", first_, "--data", second, "--out", out});
    return runtime::test::contents(out);
  };
  EXPECT_EQ(trained(turned_), trained(first_));
  const std::string other = table("other.csv", {'a', 'b', 'd'});
  expect_refused(fit({"--data", first_, "--data", other, "--out", out_}), ExitCode::invalid,
                 {"other.csv' has no column 'c'", "one of the 3 features of '", "first.csv'", "features="});
}

TEST_F(TableColumns, WhatIsMissingIsTheMeanOfTheTraining) {
  const std::string gap = table("gap.csv", {'a', 'b', 'c'}, 7), model = folder_ / "m.gcx";
  fitted({"--data", gap + ",missing=mean", "--out", model});
  // One row of its own, whose mean would be another.
  const auto one_row = [&](const std::string& b) {
    runtime::test::put(folder_ / "row.csv", concat("a,b,c,label\n1,", b, ",3,1\n9,100,3,1\n"));
    return outputs(model, folder_ / "row.csv,missing=mean");
  };
  EXPECT_EQ(one_row(""), one_row("24"));
  EXPECT_NE(one_row(""), one_row("100"));
  const CommandResult refused = run_gcomp({"eval", model_, "--data", gap + ",missing=mean", "--loss", "cross_entropy"});
  EXPECT_EQ(refused.exit_code, static_cast<int>(ExitCode::usage)) << refused.errors;
  EXPECT_NE(refused.errors.find("line 9, column 'b': its value is missing (1 of 8 are)"), std::string::npos) << refused.errors;
}

// Away from the folder of its run, with nothing beside it.
TEST_F(TableColumns, AreKnownByTheExportedFileAlone) {
  const std::string gap = table("gap.csv", {'a', 'b', 'c'}, 7);
  fitted({"--data", gap + ",missing=mean", "--out", folder_ / "t.onnx", "--run-dir", folder_ / "run"});
  const std::string alone = folder_ / "elsewhere.onnx", further = folder_ / "further.onnx";
  std::filesystem::copy_file(folder_ / "t.onnx", alone);
  EXPECT_EQ(runtime::test::contents(alone), runtime::test::contents(folder_ / "run/last.onnx"));
  const auto loss = [&](const std::string& data) {
    return loss_line(run_gcomp({"eval", alone, "--data", data, "--loss", "cross_entropy"}));
  };
  EXPECT_EQ(loss(turned_), loss(first_));
  EXPECT_NE(loss(first_), "none");
  EXPECT_EQ(outputs(alone, turned_), outputs(alone, first_));
  const auto one_row = [&](const std::string& b) {
    runtime::test::put(folder_ / "row.csv", concat("c,b,a\n3,", b, ",1\n3,100,9\n"));
    return outputs(alone, folder_ / "row.csv,missing=mean");
  };
  EXPECT_EQ(one_row(""), one_row("24"));
  EXPECT_NE(one_row(""), one_row("100"));
  const auto trained_on = [&](const std::string& data) {
    EXPECT_EQ(
        run_gcomp({"train", alone, "--loss", "cross_entropy", "--batch", "4", "--steps", "4", "--data", data, "--out", further})
            .exit_code,
        0);
    return runtime::test::contents(further);
  };
  EXPECT_EQ(trained_on(turned_), trained_on(first_));
  const std::string other = table("other.csv", {'a', 'b', 'd'});
  expect_refused(run_gcomp({"run", alone, "--inputs", other, "--outputs", folder_ / "y.npz"}), ExitCode::invalid,
                 {"other.csv' has no column 'c'", "features of 'gap.csv'"});
}

// A table that lacks a class counts the others as the training did.
TEST_F(TableColumns, ClassesOfTheLabelAreInTheExportedFile) {
  runtime::test::put(folder_ / "all.csv", "label,a,b,c\nred,1,0,0\nblue,0,1,0\nblue,0,0,1\nred,2,0,0\n");
  runtime::test::put(folder_ / "some.csv", "label,a,b,c\nred,1,0,0\nred,0,0,1\n");
  fitted({"--data", folder_ / "all.csv", "--out", folder_ / "t.onnx"});
  const CommandResult evaluated =
      run_gcomp({"eval", folder_ / "t.onnx", "--data", folder_ / "some.csv", "--loss", "cross_entropy"});
  EXPECT_EQ(evaluated.exit_code, 0) << evaluated.errors;
  EXPECT_NE(evaluated.errors.find("1 of the 2 classes of 'label' of 'all.csv'"), std::string::npos) << evaluated.errors;
}

TEST_F(TableColumns, WhatIsWrongInTheFileIsSaid) {
  write_linear_model(model_, [](onnx::ModelProto& model) {
    onnx::StringStringEntryProto& entry = *model.add_metadata_props();
    entry.set_key("gcomp.number_names");
    entry.set_value(R"({"source": "a.csv", "columns": {"features": "a"}})");
  });
  expect_refused(run_gcomp({"eval", model_, "--data", first_, "--loss", "cross_entropy"}), ExitCode::invalid,
                 {"model.onnx', metadata 'gcomp.number_names': names of numbers: "});
}

}  // namespace
}  // namespace gcomp::test
