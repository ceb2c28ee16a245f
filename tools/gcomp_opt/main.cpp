// gcomp-opt: IR text in, passes, IR text out. The tool behind the tests of passes.
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <new>
#include <set>
#include <sstream>

#include "ir/base/nearest.h"
#include "ir/text/parse.h"
#include "ir/text/print.h"
#include "ir/verify.h"
#include "passes/memory/plan_memory.h"
#include "tools/command_line/arguments.h"
#include "tools/gcomp_opt/numerics.h"
#include "tools/gcomp_opt/pass_list.h"

namespace gcomp::opt {
namespace {

constexpr const char* kExamples = R"(Examples:
  gcomp-opt model.gir --passes=simplify,expand,fuse
  gcomp-opt model.gir --passes=expand,fuse{loop_fusion=false} --verify-numerics --print-after=all
  gcomp compile model.onnx --dim batch=8 --emit ir | gcomp-opt - --passes=simplify

Several graphs may stand in one file, separated by lines "// -----", with --split-input. For --verify-numerics and
--interpret, a comment "// range %x 0 9" gives the range of an input or a state, "// value %x f32[2] [1, 2]" its value.)";

struct Options {
  std::string file, passes, target, print_after, output, same_as;
  bool verify_numerics = false, list_passes = false, interpret = false, print_plan = false, split_input = false,
       elide_constants = false;
  std::uint64_t seed = 1;
};

std::string read_text(const std::string& file) {
  if (file == "-") return {std::istreambuf_iterator<char>(std::cin), {}};
  std::ifstream in(file, std::ios::binary);
  check_user(in.good(), file, ": cannot be read");
  return {std::istreambuf_iterator<char>(in), {}};
}

struct Part {
  std::string_view text;
  int first_line = 1;
};

/// Splits at lines that begin with "// -----".
std::vector<Part> split(std::string_view text) {
  std::vector<Part> parts{{text, 1}};
  int line = 1;
  for (std::size_t start = 0, end; start < text.size(); start = end + 1, ++line) {
    end = std::min(text.find('\n', start), text.size());
    if (text.substr(start, 8) != "// -----") continue;
    parts.back().text = parts.back().text.substr(0, parts.back().text.size() - (text.size() - start));
    parts.push_back({text.substr(std::min(end + 1, text.size())), line + 1});
  }
  return parts;
}

/// Writes the graph that a pass fails on; gives the command that replays the failure.
std::string leave_reproducer(const Step& step, const ir::Graph& before) {
  std::error_code none;
  const std::filesystem::path file = std::filesystem::temp_directory_path(none) / ("gcomp-opt-" + step.name + ".gir");
  std::ofstream out(file, std::ios::binary);
  out << print(before) << std::flush;
  return out.good() ? concat("\nreproduce with: gcomp-opt ", file.string(), " '--passes=", step.text, "'") : "";
}

/// "model.gir:3", where the graph begins.
std::string place_of_graph(const Part& part, const std::string& file) {
  int line = part.first_line;
  for (std::string_view rest = part.text; !rest.empty() && !rest.starts_with("graph"); ++line)
    rest.remove_prefix(std::min(rest.find('\n'), rest.size() - 1) + 1);
  return concat(file, ":", line);
}

/// Runs one pass on a graph equal to `before`; whatever it breaks is reported with the pass's name.
void run(const Step& step, const std::string& place, const ir::Graph& before, ir::Graph& graph, PassState& state) {
  try {
    state.made.plan.reset();
    const bool changed = step.run(graph, state);
    check_internal(changed || ir::hash_of(graph) == ir::hash_of(before), "it changed the graph and says that it did not");
    ir::verify(graph);
  } catch (const InternalError& error) {
    throw InternalError(concat("after pass '", step.name, "': ", error.what(), leave_reproducer(step, before)));
  } catch (const Error& error) { throw UserError(concat(place, ": in pass '", step.name, "': ", error.what()), error.code()); }
}

/// Throws InternalError with both graphs where `after` computes something else than `before`.
std::string compare_or_show(const std::string& what, const ir::Graph& before, const ir::Graph& after, const Values& values) {
  try {
    return compare(before, after, values);
  } catch (const InternalError& error) {
    throw InternalError(concat(what, " changes what @", before.name(), " computes: ", error.what(), "\nbefore:\n", print(before),
                               "after:\n", print(after)));
  }
}

void process(const Part& part, const Options& options, const std::vector<Step>& steps, std::ostream& out) {
  const std::string file = options.file == "-" ? "<stdin>" : options.file;
  ir::Graph graph = ir::parse(part.text, {.file = file, .first_line = part.first_line});
  const Directives directives = read_directives(part.text, file, part.first_line);
  PassState state;
  Values values;
  std::set<std::string> names;
  add_names(graph, names);
  for (const Step& step : steps) {
    const ir::Graph before = clone(graph);
    run(step, place_of_graph(part, file), before, graph, state);
    add_names(graph, names);
    if (options.print_after == "all" || options.print_after == step.name)
      std::cerr << "// after " << step.text << "\n"
                << print(graph, {.elide_constants = true, .plan = state.made.plan ? &*state.made.plan : nullptr});
    if (!options.verify_numerics) continue;
    if (step.changes_meaning) {
      std::cerr << "gcomp-opt: " << step.name << ": gives the graph another meaning, nothing to compare\n";
      continue;
    }
    add_values(before, directives, options.seed, values);
    add_values(graph, directives, options.seed, values);
    const std::string agreement = compare_or_show("pass '" + step.name + "'", before, graph, values);
    std::cerr << "gcomp-opt: " << step.name << ": " << agreement << "\n";
  }
  if (!options.same_as.empty()) {
    const ir::Graph other = ir::parse(read_text(options.same_as), {.file = options.same_as});
    add_names(other, names);
    add_values(other, directives, options.seed, values);
    add_values(graph, directives, options.seed, values);
    const std::string agreement = compare_or_show(file, other, graph, values);
    std::cerr << "gcomp-opt: " << options.same_as << ": " << agreement << "\n";
  }
  if (options.verify_numerics || options.interpret || !options.same_as.empty())
    for (const std::string& note : notes_of_unused(directives, names)) std::cerr << "gcomp-opt: note: " << note << "\n";
  if (options.print_plan) {
    const ir::MemoryPlan plan = state.made.plan ? *state.made.plan : passes::plan_memory(graph);
    out << passes::describe(graph, plan);
    return;
  }
  if (!options.interpret) {
    out << print(graph, {.elide_constants = options.elide_constants, .plan = state.made.plan ? &*state.made.plan : nullptr});
    return;
  }
  add_values(graph, directives, options.seed, values);
  out << interpreted(graph, values);
}

int run(const Options& options) {
  if (options.list_passes) {
    std::cout << list_passes();
    return 0;
  }
  if (options.file.empty()) throw UserError("no file given; - reads standard input", ExitCode::usage);
  const std::vector<Step> steps = parse_passes(options.passes, options.target);
  if (!options.print_after.empty() && options.print_after != "all" &&
      std::none_of(steps.begin(), steps.end(), [&](const Step& step) { return step.name == options.print_after; })) {
    std::vector<std::string> names;
    for (const Step& step : steps) names.push_back(step.name);
    throw UserError(
        concat("--print-after: pass '", options.print_after, "' is not among --passes", did_you_mean(options.print_after, names)),
        ExitCode::usage);
  }
  const std::string text = read_text(options.file);
  std::ostringstream out;
  bool first = true;
  for (const Part& part : options.split_input ? split(text) : std::vector<Part>{{text, 1}}) {
    if (!first) out << "// -----\n";
    first = false;
    process(part, options, steps, out);
  }
  if (options.output.empty() || options.output == "-") {
    std::cout << out.str() << std::flush;
    check_user(std::cout.good(), "cannot write to standard output");
    return 0;
  }
  std::ofstream file(options.output, std::ios::binary);
  file << out.str() << std::flush;
  check_user(file.good(), options.output, ": cannot be written");
  return 0;
}

/// What was refused; for an unknown option, with the nearest one.
std::string explain(const tools::ArgumentParser& parser, const tools::Parsed& parsed) {
  if (!parsed.unknown) return "gcomp-opt: error: " + parsed.message;
  std::vector<std::string> known = parser.option_names();
  std::erase_if(known, [](const std::string& name) { return !name.starts_with("--"); });
  for (const std::string& word : parser.unknown()) {
    const std::string name = word.substr(0, word.find('='));
    if (!name.empty() && name[0] == '-') return concat("gcomp-opt: error: unknown option '", name, "'", did_you_mean(name, known));
  }
  return "gcomp-opt: error: " + parsed.message;
}

int main(int argc, char** argv) {
  Options options;
  tools::ArgumentParser parser("Reads graphs as IR text, runs passes over them and prints them.", "gcomp-opt");
  parser.set_footer(kExamples);
  parser.add_option("file", options.file, "IR text (.gir); - is standard input");
  parser.add_option("--passes", options.passes, "passes to run, in order: a,b{option=value},c");
  parser
      .add_option("--target", options.target,
                  "what passes lower for, such as cpu or cuda:sm_90; by default no one target: every pass does what it can")
      .type_name("TARGET");
  parser.add_flag("--verify-numerics", options.verify_numerics,
                  "run the graph on the interpreter before and after each pass and compare");
  parser.add_option("--same-as", options.same_as, "run the graph of FILE too and compare").type_name("FILE");
  parser.add_option("--print-after", options.print_after, "print the graph to standard error after PASS, or after all")
      .type_name("PASS|all");
  parser.add_flag("--list-passes", options.list_passes, "print the passes and their options");
  parser.add_flag("--interpret", options.interpret, "print the values of outputs and updated states instead of the graph");
  parser.add_flag("--print-plan", options.print_plan, "print what lies where in memory instead of the graph");
  parser.add_option("--seed", options.seed, "of random values");
  parser.add_flag("--split-input", options.split_input, "the file holds several graphs, separated by lines \"// -----\"");
  parser.add_flag("--elide-constants", options.elide_constants, "leave out the data of large constants");
  parser.add_option("-o,--output", options.output, "file to write; standard output by default");
  try {
    const tools::Parsed parsed = parser.parse(argc, argv);
    if (parsed.outcome == tools::Parsed::Outcome::answered) return static_cast<int>(ExitCode::ok);
    if (parsed.outcome == tools::Parsed::Outcome::run) return run(options);
    std::cerr << explain(parser, parsed) << "\n";
    return static_cast<int>(ExitCode::usage);
  } catch (const Error& error) {
    std::cerr << "gcomp-opt: error: " << error.what() << "\n";
    return static_cast<int>(error.code());
  } catch (const std::bad_alloc&) {
    std::cerr << "gcomp-opt: error: out of memory\n";
    return static_cast<int>(ExitCode::out_of_memory);
  } catch (const std::exception& error) {
    std::cerr << "gcomp-opt: internal error: " << error.what() << "\n";
    return static_cast<int>(ExitCode::internal);
  }
}

}  // namespace
}  // namespace gcomp::opt

int main(int argc, char** argv) { return gcomp::opt::main(argc, argv); }
