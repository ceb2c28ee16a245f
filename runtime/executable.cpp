#include "runtime/executable.h"

#include <algorithm>
#include <utility>

#include "ir/base/error.h"

namespace gcomp::runtime {
namespace {

std::size_t find_buffer(const Program& program, const std::vector<Port>& ports, std::string_view name, std::string_view kind) {
  std::string names;
  for (std::size_t i = 0; i < ports.size(); ++i) {
    const Buffer& buffer = program.buffers.at(static_cast<std::size_t>(ports[i].buffer));
    if (buffer.name == name) return i;
    names += concat(i ? ", " : "", "'", buffer.name, "'");
  }
  throw UserError(concat("program '", program.name, "' has no ", kind, " '", name, "'; it has ", names.empty() ? "none" : names));
}

}  // namespace

Executable::Executable(Program program, std::shared_ptr<StateMemory> states, int shards)
    : program_(std::move(program)), states_(std::move(states)), shards_(shards) {
  check_internal(shards >= 1 && (shards == 1 || program_.outputs.empty()), "program '", program_.name, "' with ",
                 program_.outputs.size(), " outputs in ", shards, " shards");
  for (std::size_t i = 0; i < program_.inputs.size(); ++i) {
    input_types_.push_back(input_buffer(i).type);
    if (Shape& shape = input_types_.back().shape; !shape.empty()) shape[0] *= shards;
  }
}

std::size_t Executable::input_index(std::string_view name) const { return find_buffer(program_, program_.inputs, name, "input"); }

std::size_t Executable::output_index(std::string_view name) const {
  return find_buffer(program_, program_.outputs, name, "output");
}

const Buffer& Executable::input_buffer(std::size_t index) const {
  check_internal(index < program_.inputs.size(), "input ", index, " of ", program_.inputs.size());
  return program_.buffers[static_cast<std::size_t>(program_.inputs[index].buffer)];
}

const Buffer& Executable::output_buffer(std::size_t index) const {
  check_internal(index < program_.outputs.size(), "output ", index, " of ", program_.outputs.size());
  return program_.buffers[static_cast<std::size_t>(program_.outputs[index].buffer)];
}

void Executable::set_input(std::size_t index, const Tensor& value) {
  const TensorType& type = input_type(index);
  check_user(type == value.type(), "input '", input_buffer(index).name, "' is ", to_string(type), ", the value given is ",
             to_string(value.type()));
  std::ranges::copy(value.bytes(), input(index).begin());
}

Tensor Executable::output(std::size_t index) {
  Tensor value(output_buffer(index).type);
  std::ranges::copy(output_bytes(index), value.bytes().begin());
  return value;
}

}  // namespace gcomp::runtime
