// Tables, against Python's csv module for records; columns and arrays by definition.
#include <fstream>
#include <nlohmann/json.hpp>

#include "data/tables/record_reader.h"
#include "tests/data/source_reading.h"

namespace gcomp::data::test {
namespace {

using Integers = std::vector<std::int64_t>;
using Records = std::vector<std::vector<std::string>>;

constexpr char kIris[] =
    "sepal_length,sepal_width,petal_length,petal_width,species\n"
    "5.1,3.5,1.4,0.2,setosa\n"
    "7,3.2,4.7,1.4,versicolor\n"
    "6.3,3.3,6,2.5,virginica\n"
    "4.9,3,1.4,0.2,setosa\n";

Records records_of(const fs::path& path, char separator) {
  const RandomAccessFile file(path);
  RecordReader reader(file, separator);
  Records records;
  std::vector<std::string_view> fields;
  while (reader.next(fields)) records.emplace_back(fields.begin(), fields.end());
  return records;
}

/// A table in a folder of its own.
class Tables : public testing::Test {
 protected:
  std::string write(const std::string& text, const std::string& name = "t.csv") const {
    put(folder_ / name, text);
    return (folder_ / name).string();
  }
  std::unique_ptr<Source> opened(const std::string& text, const std::string& options = "",
                                 std::vector<WantedArray> wanted = {}) const {
    return open_spec("csv:" + write(text) + (options.empty() ? "" : "," + options), wanted);
  }
  void refused(const std::string& text, const std::string& options, std::initializer_list<const char*> parts,
               const std::vector<WantedArray>& wanted = {}) const {
    expect_contains(error_of([&] { opened(text, options, wanted); }), parts);
  }
  TemporaryDirectory folder_;
};

std::vector<WantedArray> model_of(std::int64_t features) {
  return {{.name = "x", .dtype = DType::f32, .row = Shape{features}}, {.name = "label", .input = false}};
}

Integers column(const Source& source, const std::string& name) {
  Integers all;
  for (std::int64_t row = 0; row < source.rows(); ++row) all.push_back(integers(source, name, row)[0]);
  return all;
}

std::vector<double> numbers(const Source& source, const std::string& name, std::int64_t row) {
  return row_of(source, name, row).to_doubles();
}

TEST_F(Tables, RecordsAreThoseOfPythonsCsv) {
  const fs::path folder = fs::path(GCOMP_SOURCE_DIR) / "tests/fixtures/data/tables";
  std::ifstream in(folder / "records.json");
  const nlohmann::json all = nlohmann::json::parse(in);
  ASSERT_EQ(all.size(), 5u);
  for (const auto& [name, wanted] : all.items())
    EXPECT_EQ(records_of(folder / (name + ".csv"), wanted["separator"].get<std::string>()[0]), wanted["records"].get<Records>())
        << name;
}

TEST_F(Tables, RecordsGoOnBeyondWhatIsReadAtOnce) {
  std::string text;
  for (int i = 0; i < 300'000; ++i) text += concat(i, ",\"a\"\"", i, "\"\r\n");
  const Records records = records_of(write(text), ',');
  ASSERT_EQ(records.size(), 300'000u);
  for (int i = 0; i < 300'000; i += 997)
    EXPECT_EQ(records[static_cast<std::size_t>(i)], (std::vector<std::string>{std::to_string(i), concat("a\"", i)}));
  EXPECT_EQ(records_of(write("a,\"" + std::string(3 << 20, 'x') + "\"\nb,c"), ',')[0][1].size(), std::size_t{3} << 20);
}

TEST_F(Tables, NumbersFeedTheInputAndTextTheLabel) {
  const auto source = opened(kIris, "label=species", model_of(4));
  EXPECT_EQ(source->rows(), 4);
  EXPECT_EQ(array_names(*source), (std::vector<std::string>{"label", "x"}));
  EXPECT_EQ(source->arrays()[1].second, (TensorType{DType::f32, {4}}));
  EXPECT_EQ(row_of(*source, "x", 1), Tensor::of(DType::f32, {4}, {7, 3.2, 4.7, 1.4}));
  EXPECT_EQ(column(*source, "label"), (Integers{0, 1, 2, 0}));
  EXPECT_EQ(source->class_names(0), (std::vector<std::string>{"setosa", "versicolor", "virginica"}));
  EXPECT_EQ(source->class_names(1), std::vector<std::string>());
  expect_contains(source->where(2), {"t.csv', line 4"});
  EXPECT_NE(source->whole(1), nullptr);
}

TEST_F(Tables, ColumnCalledLabelNeedsNoOption) {
  const auto source = opened("label,a,b\n3,1,2\n1,0.5,4\n", "", model_of(2));
  EXPECT_EQ(column(*source, "label"), (Integers{3, 1}));
  EXPECT_EQ(numbers(*source, "x", 1), (std::vector<double>{0.5, 4}));
}

TEST_F(Tables, PixelsOfAnImageTakeItsShape) {
  const std::vector<WantedArray> wanted{{.name = "image", .dtype = DType::f32, .row = Shape{1, 2, 2}}};
  EXPECT_EQ(opened("label,0,1,2,3\n7,1,2,3,4\n", "", wanted)->arrays()[0].second, (TensorType{DType::f32, {1, 2, 2}}));
}

TEST_F(Tables, ColumnsAreArraysByName) {
  const std::vector<WantedArray> wanted{{.name = "age", .dtype = DType::f32, .row = Shape{}},
                                        {.name = "city", .dtype = DType::i64, .row = Shape{}},
                                        {.name = "price", .input = false}};
  const auto source = opened("age,city,price\n31,Rom,1.5\n28,Bonn,2\n", "", wanted);
  EXPECT_EQ(source->arrays()[array_of(*source, "age")].second, (TensorType{DType::f32, {}}));
  EXPECT_EQ(column(*source, "city"), (Integers{1, 0}));
  EXPECT_EQ(numbers(*source, "price", 1), std::vector<double>{2});
}

TEST_F(Tables, RealLabelsHaveTheShapeOfARegressionsOutput) {
  EXPECT_EQ(opened("a,price\n1,2.5\n2,3\n", "label=price", model_of(1))->arrays()[0].second, (TensorType{DType::f32, {1}}));
  EXPECT_EQ(opened("a,price\n1,2\n", "label=price,numbers=price", model_of(1))->arrays()[0].second, (TensorType{DType::f32, {1}}));
  EXPECT_EQ(opened("a,price\n1,2\n", "label=price", model_of(1))->arrays()[0].second, (TensorType{DType::i64, {}}));
}

TEST_F(Tables, FeaturesAreTakenInTheOrderGiven) {
  const auto source = opened("a,b,\"c, d\",label\n1,2,3,0\n4,5,6,1\n", "features='\"c, d\",a'", model_of(2));
  EXPECT_EQ(numbers(*source, "x", 1), (std::vector<double>{6, 4}));
  const auto all = opened(kIris, "label=species,features=all,drop=sepal_width");
  EXPECT_EQ(numbers(*all, "features", 0), (std::vector<double>{5.1, 1.4, 0.2}));
}

TEST_F(Tables, TypesFollowFromTheFields) {
  const auto source =
      opened("i,r,big,neg,c,mixed\n1,1,9223372036854775807,-0.5,x,1\n+2,2.0, 5 ,1e3,\"x,y\",2\n3,.5,0,7.,a,three\n");
  EXPECT_EQ(source->arrays()[0].second.dtype, DType::i64);
  EXPECT_EQ(source->arrays()[1].second.dtype, DType::f64);
  EXPECT_EQ(column(*source, "i"), (Integers{1, 2, 3}));
  EXPECT_EQ(column(*source, "big"), (Integers{9223372036854775807, 5, 0}));
  EXPECT_EQ(numbers(*source, "neg", 1), std::vector<double>{1000});
  EXPECT_EQ(source->class_names(4), (std::vector<std::string>{"a", "x", "x,y"}));
  EXPECT_EQ(source->class_names(5), (std::vector<std::string>{"1", "2", "three"}));
  EXPECT_EQ(column(*source, "mixed"), (Integers{0, 1, 2}));
  ASSERT_EQ(source->notes().size(), 1u);
  expect_contains(source->notes()[0], {"line 4", "column 'mixed'", "'three'", "numbers='mixed'"});
}

TEST_F(Tables, MissingValuesAreRefusedOrFilled) {
  constexpr char kTable[] = "a,b,name,label\n1,0.5,x,0\nNA,,x,1\n3,1.5,?,1\n";
  refused(kTable, "", {"line 3, column 'a'", "missing", "missing=mean", "drop='a'"}, model_of(2));
  const auto mean = opened(kTable, "missing=mean", model_of(2));
  EXPECT_EQ(numbers(*mean, "x", 1), (std::vector<double>{2, 1}));
  const auto zero = opened(kTable, "missing=zero", model_of(2));
  EXPECT_EQ(numbers(*zero, "x", 1), (std::vector<double>{0, 0}));
  ASSERT_EQ(zero->notes().size(), 3u);
  expect_contains(zero->notes()[0], {"column 'a'", "1 of 3", "line 3"});
  EXPECT_EQ(opened(kTable, "missing=zero")->class_names(2), (std::vector<std::string>{"", "x"}));
  EXPECT_EQ(column(*opened(kTable, "missing=zero"), "name"), (Integers{1, 1, 0}));
  refused("a,label\n1,0\n2,\n", "missing=mean", {"line 3", "label is missing"}, model_of(1));
  refused("a,b,label\n,1,0\n,2,0\n", "missing=mean", {"column 'a'", "no value"}, model_of(2));
}

TEST_F(Tables, WithoutAModelOnlyTheRowThatLacksAValueIsAnError) {
  const auto source = opened("a,b\n1,2\n,4\n");
  EXPECT_EQ(integers(*source, "a", 0), Integers{1});
  EXPECT_EQ(integers(*source, "b", 1), Integers{4});
  expect_contains(error_of([&] { row_of(*source, "a", 1); }), {"t.csv', line 3", "column 'a'", "missing"});
}

TEST_F(Tables, ColumnsThatNothingTakesMayLackValues) {
  const auto source = opened("a,cabin,label\n1,,0\n2,C85,1\n", "", model_of(1));
  EXPECT_EQ(numbers(*source, "x", 1), std::vector<double>{2});
}

TEST_F(Tables, LinesAreCountedThroughQuotesAndEmptyOnes) {
  const auto source = opened(
      "\xEF\xBB\xBF"
      "a,b\r\n\r\n\"x\ny\",1\r\n\r\nz,2\r\n");
  EXPECT_EQ(array_names(*source), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(source->rows(), 2);
  expect_contains(source->where(0), {"line 3"});
  expect_contains(source->where(1), {"line 6"});
  EXPECT_EQ(source->class_names(0), (std::vector<std::string>{"x\ny", "z"}));
}

TEST_F(Tables, HeadersMayBeMissing) {
  const auto source = opened("5.1,a\n4.9,b\n", "header=false,label=c1", model_of(1));
  EXPECT_EQ(source->rows(), 2);
  EXPECT_EQ(numbers(*source, "x", 0), std::vector<double>{5.1F});
  refused("5.1,a\n4.9,b\n", "", {"line 1, field 1", "number 5.1", "header=false"});
  EXPECT_EQ(array_names(*opened("2019,2020\n1,2\n", "header=true")), (std::vector<std::string>{"2019", "2020"}));
  EXPECT_EQ(array_names(*opened("0,1,2\n1,2,3\n")), (std::vector<std::string>{"0", "1", "2"}));
  EXPECT_EQ(array_names(*opened(",x\n1,2\n")), (std::vector<std::string>{"c0", "x"}));
}

TEST_F(Tables, BadTablesAreRefusedByLineAndColumn) {
  refused("", "", {"empty"});
  refused("\n\n", "", {"no lines"});
  refused("a,b\n", "", {"no rows after its header"});
  refused("a,b\n1,2\n1,2,3\n", "", {"line 3", "found 3 fields", "wanted 2", "line 1"});
  refused("a,b\n1\n", "", {"line 2", "found 1 field,", "wanted 2"});
  refused("a,a\n1,2\n", "", {"line 1", "columns 1 and 2", "'a'"});
  refused("a,b\n1,\"2\n3,4\n", "", {"line 2, field 2", "not closed"});
  refused("a,b\n1,\"2\"x\n", "", {"line 2, field 2", "follows its closing quote"});
  refused(std::string("a,b\n1,\0\n", 8), "", {"line 2, field 2", "byte of zero"});
  refused("a,\xFFx\n1,2\n", "", {"line 1, field 2", "UTF-8"});
  refused("a,b\n1,\xFFx\n", "", {"line 2, column 'b'", "UTF-8"});
  refused("a,b\n1,1e999\n", "", {"line 2, column 'b'", "'1e999'", "range"});
  refused("a,b\n1,2\n3,x\n", "numbers=b", {"line 3, column 'b'", "'x'", "wanted a number"});
  refused("a;b\n1;2\n", "", {"separator=\";\""});
  refused(
      "\xFF\xFE"
      "a,b\n1,2\n",
      "", {"UTF-16"});
  refused("a,b,label\n1,1e300,0\n", "", {"line 2, column 'b'", "range of f32"}, model_of(2));
  refused("a,b\n1,2\n", "label=c", {"no column 'c'", "'a' and 'b'"});
  refused("a,b\n1,2\n", "drop=c", {"no column 'c'"});
  refused("label,b\n1,2\n", "label=b", {"'label' too"});
  refused("a,b,name,label\n1,2,x,3\n", "", {"'x' takes 3 numbers", "2 columns have", "'a' and 'b'", "text is in 'name'"},
          model_of(3));
}

/// What a model keeps of a table of a and b, and tables that are read by it.
class KnownTables : public Tables {
 protected:
  std::unique_ptr<Source> second(const std::string& text, const std::string& options = "", bool trains = false) const {
    const KnownColumns known{.kept = &kept_, .trains = trains};
    return open(parse_spec("csv:" + write(text) + (options.empty() ? "" : "," + options)), model_of(2), known);
  }
  void second_refused(const std::string& text, const std::string& options, std::initializer_list<const char*> parts) const {
    expect_contains(error_of([&] { second(text, options); }), parts);
  }
  KeptColumns kept_{.source = "first.csv", .features = {"a", "b"}, .means = {{"a", 10}, {"b", 20}}};
};

TEST_F(Tables, FeaturesAndTheMeansOfTrainingRowsAreKept) {
  const auto source = opened("b,name,a,label\n1,x,2,0\n,y,4,1\n5,z,,0\n9,z,8,1\n", "missing=mean,features='a,b'", model_of(2));
  const std::vector<std::int64_t> rows{0, 1};
  source->take_means(rows);
  EXPECT_EQ(source->columns(), (KeptColumns{.source = source->source(), .features = {"a", "b"}, .means = {{"a", 3}, {"b", 1}}}));
  EXPECT_EQ(numbers(*source, "x", 1), (std::vector<double>{4, 1}));
  EXPECT_EQ(numbers(*source, "x", 2), (std::vector<double>{3, 5}));
  EXPECT_EQ(numbers(*source, "x", 3), (std::vector<double>{8, 9}));
  const auto all = opened("a,b,label\n1,2,0\n3,4,1\n", "", model_of(2));  // nothing is missing here; elsewhere something may be
  all->take_means({});
  EXPECT_EQ(all->columns().means, (std::map<std::string, double>{{"a", 2}, {"b", 3}}));
  const auto lacking = opened("a,b,label\n1,2,0\n,4,1\n", "missing=mean", model_of(2));
  const std::vector<std::int64_t> last{1};
  expect_contains(error_of([&] { lacking->take_means(last); }), {"column 'a'", "no value", "trained on"});
  EXPECT_TRUE(opened("1.5,2,0\n3,4,1\n", "header=false,label=c2", model_of(2))->columns().features.empty());
}

TEST_F(KnownTables, FeaturesAreTakenByName) {
  const auto source = second("label,b,other,a\n0,1,7,2\n1,3,8,4\n");
  EXPECT_EQ(numbers(*source, "x", 0), (std::vector<double>{2, 1}));
  EXPECT_EQ(numbers(*source, "x", 1), (std::vector<double>{4, 3}));
  ASSERT_EQ(source->notes().size(), 2u);
  expect_contains(source->notes()[0], {"t.csv'", "another order than 'first.csv'", "by name"});
  expect_contains(source->notes()[1], {"'other' is no feature of 'first.csv'"});
  EXPECT_TRUE(second("a,b,label\n1,2,0\n")->notes().empty());
  second_refused("a,c,label\n1,2,0\n", "", {"no column 'b'", "one of the 2 features of 'first.csv'", "'a' and 'b'", "features="});
}

TEST_F(KnownTables, OthersMayStandForThemByPlace) {
  EXPECT_EQ(numbers(*second("b,c,label\n1,2,0\n", "features='c,b'"), "x", 0), (std::vector<double>{2, 1}));
  EXPECT_EQ(numbers(*second("b,a,label\n1,2,0\n", "features='b,a'"), "x", 0), (std::vector<double>{2, 1}));  // by name
  EXPECT_EQ(numbers(*second("b,c,label\n1,,0\n", "features='c,b',missing=mean"), "x", 0), (std::vector<double>{10, 1}));
  second_refused("b,c,label\n1,2,0\n", "features='b,c'", {"'b' as number 1", "'a' and 'b'", "in their places"});
  second_refused("b,c,label\n1,2,0\n", "features='c'", {"given 1 column", "the 2 of 'first.csv'"});
}

TEST_F(KnownTables, WhatIsMissingIsTheMeanOfTheTraining) {
  EXPECT_EQ(numbers(*second("a,b,label\n1,,0\n,3,0\n", "missing=mean"), "x", 0), (std::vector<double>{1, 20}));
  EXPECT_EQ(numbers(*second("a,b,label\n1,,0\n,3,0\n", "missing=mean"), "x", 1), (std::vector<double>{10, 3}));
  kept_.means.erase("b");
  second_refused("a,b,label\n1,,0\n,3,0\n", "missing=mean", {"line 2, column 'b'", "not known", "missing=zero"});
  EXPECT_EQ(numbers(*second("a,b,label\n1,,0\n1,4,0\n", "missing=mean", true), "x", 0), (std::vector<double>{1, 4}));
}

TEST_F(KnownTables, TextIsNumberedAsThere) {
  const std::vector<WantedArray> model{{.name = "city", .dtype = DType::i64, .row = Shape{}}, {.name = "label", .input = false}};
  const auto first = opened("city,label\nRom,0\nBonn,1\nWien,1\n", "", model);
  EXPECT_EQ(column(*first, "city"), (Integers{1, 0, 2}));
  KeptColumns kept = first->columns();
  kept.source = "first.csv";
  EXPECT_EQ(kept.classes, (std::map<std::string, std::vector<std::string>>{{"city", {"Bonn", "Rom", "Wien"}}}));
  const KnownColumns known{.kept = &kept, .trains = false};
  const auto part = open(parse_spec(write("city,label\nWien,0\nRom,1\n")), model, known);
  EXPECT_EQ(column(*part, "city"), (Integers{2, 1}));
  expect_contains(error_of([&] { open(parse_spec(write("city,label\nOslo,0\n")), model, known); }),
                  {"column 'city'", "'Oslo' is none of the 3 classes", "'first.csv'", "'Bonn', 'Rom' and 'Wien'"});
}

TEST_F(Tables, RecognisedByNameOrContent) {
  EXPECT_EQ(parse_spec(write("a\n1\n")).format->definition.name, "csv");
  EXPECT_EQ(parse_spec(write("a\tb\n1\t2\n", "t.tsv")).format->definition.name, "tsv");
  EXPECT_EQ(parse_spec(write("a,\"b\n,\"\n1,2\n", "iris.data")).format->definition.name, "csv");
  EXPECT_EQ(parse_spec(write("a\tb, c\n1\t2\n", "table")).format->definition.name, "tsv");
  EXPECT_EQ(parse_spec(write("one, two\nthree, four\n", "t.txt")).format->definition.name, "text");
  EXPECT_EQ(open_spec("csv:" + write("a;b\n1;2\n") + ",separator=\";\"")->arrays().size(), 2u);
  EXPECT_EQ(open_spec("csv:" + write("a\tb\n1\t2\n") + ",separator=tab")->arrays().size(), 2u);
}

}  // namespace
}  // namespace gcomp::data::test
